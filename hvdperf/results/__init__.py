"""Documents on disk and back: takes outcomes, writes JSON; reads JSON, gives cases and outcomes.
fingerprint.py says what makes two sessions comparable. Never measures and never judges."""

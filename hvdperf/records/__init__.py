"""Results on disk. The package writes outcomes as JSON and reads JSON back as cases and outcomes;
fingerprint.py says what makes two sessions comparable. It never measures and never judges."""

"""Results, for people: what sessions have written, as one page with plots, and as tables.
Reads documents of sessions and of the history. Never measures and never changes a verdict."""

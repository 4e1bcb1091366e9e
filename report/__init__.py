"""Results, for people: what sessions have written, as one page with plots, and as tables."""

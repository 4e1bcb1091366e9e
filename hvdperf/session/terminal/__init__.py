"""The tables at the end of a session: takes outcomes, and an earlier session; gives lines of text.
Never prints and never changes a verdict."""

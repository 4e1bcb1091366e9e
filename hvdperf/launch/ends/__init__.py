"""The end of a session: with whom it ends, and what is removed then."""

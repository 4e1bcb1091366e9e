"""The tables at the end of a session: lines of text from outcomes and from an earlier session.
This package never prints and never changes a verdict."""

"""Paired measurements of the suite's own cost, in one session; `make bench` runs them."""

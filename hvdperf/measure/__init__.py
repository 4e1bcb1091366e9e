"""Rounds: takes comparisons and what starts arms, has their ranks time blocks, gives records.
Settles which blocks, in which order and how often. Never judges a figure and writes no file."""

"""Kinds of work: what launches do once they have started, and what its figures are.

One class a kind, from the order of blocks to the observation of a round and the cause of a FAIL. No
class judges a figure or writes a file.
"""

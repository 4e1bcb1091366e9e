"""Judges records: takes rounds and rules; gives an outcome: validity, figure, verdict and cause.

It never starts, times, reads or writes anything.
"""

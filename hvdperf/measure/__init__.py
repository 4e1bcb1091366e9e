"""Measures rounds: takes comparisons and an arm launcher, has ranks time blocks, gives records.

It settles which blocks are timed, in which order and how often. It never judges a figure and writes
no file.
"""

"""The plan of a session: the questions that are asked.

The package takes options, profiles, thresholds and data sets, and returns arms, comparisons and
faults. It checks everything before anything starts. It never starts a rank and never measures.
"""

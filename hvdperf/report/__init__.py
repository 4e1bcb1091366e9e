"""Reports of results for people: one page with plots, or tables.

This package reads the documents of sessions. It never measures anything and
never changes a verdict.
"""

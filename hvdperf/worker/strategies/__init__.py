"""The strategies by which a rank trains: a class each, the Trainer of base.py, made from the rank's
config.

A strategy never times a block and never talks to the session.
"""

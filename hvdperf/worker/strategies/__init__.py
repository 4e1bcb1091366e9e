"""The strategies by which a rank trains: one module each, which makes the Trainer of base.py from
the rank's config.

A strategy never times a block and never talks to the session.
"""

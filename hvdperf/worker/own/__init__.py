"""Networks of a user's own: tried before anything is measured, and their errors in words.

`trial` runs in a process of its own. Nothing here times what a session judges.
"""

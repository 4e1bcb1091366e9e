"""Ranks forked from one process that has made their imports."""

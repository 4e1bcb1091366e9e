"""Starts a group of fresh processes, drives it over one connection per rank, and ends it."""

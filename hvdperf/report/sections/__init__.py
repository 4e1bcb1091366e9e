"""A section of the report a file: cases in, tables and plots out. Never knows the format."""

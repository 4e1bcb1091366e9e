"""The sections of the report, one module each: cases in, tables and plots out, for any format."""

"""A report as text: what each format is, and how it keeps what is quoted from acting in it."""

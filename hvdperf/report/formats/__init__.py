"""The formats of a report, each with the escaping that its text needs."""

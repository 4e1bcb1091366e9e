"""The formats of a report, and the escaping by which quoted text stays inert in each of them."""

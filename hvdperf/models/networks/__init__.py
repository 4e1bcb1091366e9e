"""The networks, by their families. A builder takes (input_size, classes); see models.registry."""

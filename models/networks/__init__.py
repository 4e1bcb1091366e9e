"""The networks, one topology a file. A builder takes (input_size, classes); see models.registry."""

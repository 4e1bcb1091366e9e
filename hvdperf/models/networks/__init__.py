"""The networks, a topology per file. A builder takes (input_size, classes); see models.registry."""

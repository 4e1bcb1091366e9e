"""The networks that are trained and their inputs, each chosen by name."""

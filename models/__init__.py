"""What is trained: networks and inputs, each chosen by name."""

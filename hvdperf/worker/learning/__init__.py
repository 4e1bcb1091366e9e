"""What training adds to a step: learning rates, losses over steps, several batches an update."""

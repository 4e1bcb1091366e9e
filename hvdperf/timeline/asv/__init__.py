"""The export to asv, which runs, publishes and browses the history by release."""

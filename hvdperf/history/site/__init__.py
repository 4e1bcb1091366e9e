"""The files that asv's published site needs besides those that asv writes."""

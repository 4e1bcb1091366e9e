"""What asv's published site needs besides what asv writes."""

"""The page of both axes."""

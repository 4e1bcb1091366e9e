"""The axis of dates: nights, and what regressed from one to the next."""

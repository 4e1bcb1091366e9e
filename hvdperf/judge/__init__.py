"""From records to an outcome: takes rounds and rules; gives validity, figure, verdict and cause.
Never starts, times, reads or writes anything."""

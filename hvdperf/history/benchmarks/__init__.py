"""What asv runs in environments of its own: takes their interpreter, gives throughputs.
Never imports anything of ours: it asks `hvdperf history`."""

"""A training script that nobody changed, measured: `hvdperf run -- COMMAND`."""

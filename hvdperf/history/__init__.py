"""Throughput across Horovod and TensorFlow releases: what sessions measured, as asv's history.
Starts sessions of the suite and reads their documents. Never times anything itself."""

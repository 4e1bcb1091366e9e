"""Throughput across Horovod and TensorFlow releases: figures of sessions, as asv's history.
The package starts sessions of the suite and reads their documents. It never times anything."""

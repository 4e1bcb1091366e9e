"""Throughput across Horovod and TensorFlow releases: what sessions measured, as asv's history."""

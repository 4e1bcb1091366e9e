"""The axis of releases: what sessions with a Horovod and a TensorFlow measured, and how to get
them."""

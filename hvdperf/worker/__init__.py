"""A rank: takes its config and orders over a connection, trains, sends back times and numbers.
Needs Python 3.9, NumPy, TensorFlow and Horovod; bare_mpi.py needs mpi4py instead of these two.
Imports models and nothing else of ours. Never judges what it measures."""

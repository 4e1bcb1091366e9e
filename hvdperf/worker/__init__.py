"""The code of a rank: takes its config and orders over a connection, trains, sends back times and
numbers.

It needs Python 3.9, NumPy, TensorFlow and Horovod; bare_mpi.py needs mpi4py instead of the last
two. It imports models/ and nothing else of this project. It never judges what it measures.
"""

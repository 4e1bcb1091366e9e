"""What runs inside a rank. Needs TensorFlow, Horovod, NumPy and Python 3.9, nothing else;
bare.py, which needs neither TensorFlow nor Horovod, needs mpi4py."""

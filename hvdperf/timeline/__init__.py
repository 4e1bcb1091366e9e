"""A figure over time, along two axes: nights by date, and sessions by release of Horovod and of
TensorFlow. The package starts sessions of the suite and reads their documents. It never times
anything."""

"""From an arm to a running group of processes and to its end: takes an arm and slots, sends orders,
gives replies or the first cause of a failure. Never judges.
In the session's process only this room speaks MPI and opens sockets."""

"""The benchmarks that asv runs in environments of its own: they take an environment's interpreter
and return throughputs. They import nothing of hvdperf; they run `hvdperf history` instead."""

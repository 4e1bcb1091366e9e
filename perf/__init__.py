"""The cases, by question.

In another project an installed hvdperf has them: pytest -p hvdperf --pyargs hvdperf.perf
"""

"""Terms of a step and of memory, by which a fault is named (hvdperf.judge.time_breakdown.TERMS)."""

from __future__ import annotations

# Besides each phase of a start-up.
BETWEEN, INPUT, COMPUTE, EXCHANGE = (
    "between steps",
    "input wait",
    "compute",
    "exposed communication",
)
# What they are together where nothing tells them apart.
INSIDE = "compute or communication"
# What takes no time.
MEMORY = "memory"
# Terms that only blocks without exchange tell apart.
TOLD_APART = (COMPUTE, EXCHANGE)

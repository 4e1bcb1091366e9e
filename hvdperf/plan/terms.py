"""Terms of a step and of memory, which name a fault (hvdperf.judge.time_breakdown.TERMS)."""

from __future__ import annotations

# Terms of a step. The phases of a start-up are terms, too.
BETWEEN, INPUT, COMPUTE, EXCHANGE = (
    "between steps",
    "input wait",
    "compute",
    "exposed communication",
)
# COMPUTE or EXCHANGE, if the measured blocks cannot tell which.
INSIDE = "compute or communication"
# A term that takes no time.
MEMORY = "memory"
# Terms that can be told apart only by blocks without exchange.
TOLD_APART = (COMPUTE, EXCHANGE)

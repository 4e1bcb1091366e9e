"""Terms of a time breakdown: the names of the parts of a start and of a step. Pure data."""

from __future__ import annotations

from enum import StrEnum


class Term(StrEnum):
    """A part of the wall time of a training (hvdperf/explain/time_breakdown.py defines each), or
    another cause that an attribution can name.

    INSIDE: COMPUTE or EXCHANGE, if the measured blocks cannot tell which. MEMORY takes no time.
    COLLECTING, OTHERS and OTHER_EXCHANGE are known of a script only (hvdperf/script/terms.py).
    """

    LAUNCH = "launch"
    IMPORT = "import"
    INIT = "init"
    BUILD = "build"
    INPUT_OPENED = "input"
    TRACE = "trace"
    FIRST_STEP = "first step"
    BROADCAST = "broadcast"
    READY = "ready"
    BETWEEN = "between steps"
    INPUT = "input wait"
    STRAGGLER = "straggler wait"
    COMPUTE = "compute"
    APPLY = "apply"
    LONG_STEPS = "rare long steps"
    EXCHANGE = "exposed communication"
    END = "end"
    COLLECTING = "garbage collector"
    OTHERS = "other functions"
    OTHER_EXCHANGE = "other exchanges"
    INSIDE = "compute or communication"
    MEMORY = "memory"


# All parts of the wall time, and of these the phases of a start after the launch and the parts of a
# step, in their order.
TERMS = tuple(Term)[: list(Term).index(Term.END) + 1]
_STEPS_BEGIN = TERMS.index(Term.BETWEEN)
START, OF_STEPS = TERMS[1:_STEPS_BEGIN], TERMS[_STEPS_BEGIN:-1]
# Terms that only blocks without exchange can separate.
NEED_LOCAL_BLOCKS = (Term.COMPUTE, Term.EXCHANGE)

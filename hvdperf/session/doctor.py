"""The command doctor: is this machine fit to measure, and what would make it so?"""

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from hvdperf.cli import Commands, add_command
from hvdperf.columns import WIDTH
from hvdperf.errors import UserError
from hvdperf.judge.judge import is_outside
from hvdperf.launch.guard import guarded
from hvdperf.machine.fitness import Check, judged
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, RESULTS, ROOT, cases
from hvdperf.plan.options import SHORT
from hvdperf.programs import TooLong, run
from hvdperf.records.archive import read_session
from hvdperf.session.commands import given
from hvdperf.session.dry_run import dry_run
from hvdperf.session.ending import UNFIT
from hvdperf.session.preflight import local_preflight
from hvdperf.verdict import Judgement, Verdict

# Seconds after which a session that compares a stack with itself hangs.
PAIR_DEADLINE_S = 300
# A larger minimum detectable effect (an interval of more than 20 % to a side) cannot tell the
# limits of ci/thresholds from the figures of a sound machine.
WIDEST_PAIR = 0.30
_INDENT = 24
# The number of cases without a threshold that are named.
_NAMED = 3
_AGAIN = f"stop what else runs here, then: pytest {' '.join(cases('test_trust'))} -k aa"


def add_to(commands: Commands) -> None:
    """Add the command doctor."""
    add = add_command(
        commands,
        "doctor",
        "Check whether this machine is fit to measure. The machine, its GPUs, the installed stack, "
        f"data and thresholds are checked. Exit status: 0 if it is fit to measure, {UNFIT} if not.",
    )
    group = add.add_argument_group("what to check")
    group.add_argument(
        "--pair",
        action="store_true",
        help="Also compare the stack with itself for a minute, to show which change a session "
        "sees. Default: start no ranks.",
    )
    for option, metavar, text in (
        ("--profile", "NAME", "Check this profile. Default: default."),
        ("--data-dir", "DIR", "Check the data sets of this directory. Default: as pytest perf/."),
        ("--thresholds", "FILE", "Check this file. Default: that of machines like this one."),
    ):
        group.add_argument(option, metavar=metavar, help=text)
    group.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="Check that there is room for results here. Default: results.",
    )
    add.set_defaults(command=doctor)


def doctor(arguments: argparse.Namespace) -> int:
    """Print every check; return 0 if no check has a problem, else UNFIT."""
    checks = []
    for check in _checks(arguments):
        checks.append(check)
        for line in _lines(check):
            print(line, flush=True)
    wrong = [check.name for check in checks if check.problem]
    print(f"unfit: {', '.join(wrong)}" if wrong else "fit to measure")
    return UNFIT if wrong else 0


def _lines(check: Check) -> Iterator[str]:
    """Return the value, and below it what is wrong and what mends it."""
    mark = "UNFIT" if check.problem else "ok"
    texts = [check.value]
    if check.problem:
        texts += [f"wrong: {check.problem}", f"mend: {check.mend}"]
    first, *more = (line for text in texts for line in _wrapped(text))
    yield f"{mark:<6}{check.name:<{_INDENT - 6}}{first}"
    for line in more:
        yield f"{'':<{_INDENT}}{line}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH - _INDENT, break_on_hyphens=False) or [""]


def _checks(arguments: argparse.Namespace) -> Iterable[Check]:
    yield from local_preflight(arguments.results)
    stack = _stack()
    yield stack
    if stack.problem:
        return
    yield from _planned(arguments)
    if arguments.pair:
        yield pair_check()


def _stack() -> Check:
    try:
        stack = probe(sys.executable, CACHE)
    except UserError as error:
        return Check("stack", "broken", *_split(str(error)))
    built = ", ".join(stack.horovod_flags)
    versions = f"TensorFlow {stack.tensorflow}, Keras {stack.keras}, Horovod {stack.horovod}"
    return Check("stack", f"{versions} ({built}), {stack.mpirun_version}")


def _split(message: str) -> tuple[str, str]:
    """Split the message of a UserError into what is wrong and what to do."""
    problem, _, mend = message.partition("; ")
    return problem, mend or "correct it"


def _planned(arguments: argparse.Namespace) -> Iterator[Check]:
    """Return the checks of data and thresholds, from the plan of a session that is not run."""
    try:
        planned = dry_run(given(arguments, "profile", "data_dir", "thresholds"))
    except UserError as error:
        yield Check("plan", "refused", *_split(str(error)))
        return
    missing = planned.without_threshold
    more = f" and {len(missing) - _NAMED} more" * (len(missing) > _NAMED)
    yield Check("profile, data", planned.work)
    yield Check("settings", ", ".join(planned.settings) or "none that changes figures")
    yield judged(
        "thresholds",
        planned.thresholds,
        not missing,
        f"no limit for {', '.join(missing[:_NAMED])}{more}",
        "measure, and paste the lines that the session prints, or see `hvdperf thresholds propose`",
    )


def pair_check() -> Check:
    """Compare the stack with itself in a session of a minute, and return what that session could
    see."""
    if len(local_offers(local_machine())) < 2:
        return Check("A/A pair", "not possible with one slot")
    with tempfile.TemporaryDirectory() as results:
        command = [sys.executable, "-m", "pytest", *cases("test_trust"), "-q", "-k", "aa"]
        options = ["--models=vgg_16_s", *SHORT.split()]
        try:
            run(
                guarded([*command, *options, f"--results={results}"]),
                ROOT,
                within_s=PAIR_DEADLINE_S,
            )
        except TooLong:
            return Check("A/A pair", "no figure", f"no end in {PAIR_DEADLINE_S} s", _AGAIN)
        runs = sorted(Path(results, "runs").glob("*"))
        found = [case.outcome.judgement for case in read_session(runs[0]).cases] if runs else []
    seen = [judgement for judgement in found if judgement.detectable_effect is not None]
    if not seen:
        said = [judgement.reason for judgement in found] or ["no session was written"]
        return Check("A/A pair", "no figure", said[0], _AGAIN)
    (judgement,) = seen
    return check_of_pair(judgement)


def check_of_pair(judgement: Judgement) -> Check:
    """Return the check of an A/A pair with an interval: its two groups must not differ, and its
    interval must be narrow.

    An estimate outside of the band counts as a difference here, because another minute tells
    whether it was chance.
    """
    problem = ""
    if judgement.verdict is Verdict.INVALID or is_outside(judgement):
        problem = "two identical groups differ"
    elif (judgement.detectable_effect or 0.0) > WIDEST_PAIR:
        problem = f"changes below {100 * WIDEST_PAIR:.0f} % should be seen"
    return judged("A/A pair", judgement.reason, not problem, problem, _AGAIN)

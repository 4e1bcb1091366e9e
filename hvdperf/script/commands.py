"""The command that measures a training script that nobody changed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hvdperf.cli import complain
from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.json_records import encode
from hvdperf.paths import RESULTS, shown
from hvdperf.records.documents import session_name
from hvdperf.report.commands import FORMATS, ReportRequest, report_sessions, write, write_file
from hvdperf.report.plugin import write_apart
from hvdperf.report.session import results_of
from hvdperf.script import launch, short_runs
from hvdperf.script.launch import Command
from hvdperf.script.page import report_of
from hvdperf.script.recorded import LAUNCH, RECORDS, Launch, last_job, read_launch, read_ranks
from hvdperf.script.training import Training, lines, training_of
from hvdperf.session.ending import exit_status
from hvdperf.timeline.commands import told_next_to_others, write_nights_page
from hvdperf.timeline.nights.night import check_series
from hvdperf.verdict import EXIT_STATUS, Verdict

REPORT = "report.txt"
# Shows a line of progress.
_say = partial(print, flush=True)
BUDGET_MIN = 15.0
_ROOM = "make room on this disk, or name another one with --results"


@dataclass(frozen=True)
class ScriptRequest:
    """How a script is measured.

    --steps N: Stop after N steps. Default: run to completion.
    --check: Exit with status 7 if gradients are not allreduced or ranks read the same data.
        Default: exit with the status of the command.
    --against X: Compare the command as given with the same command using X, in short alternating
        runs. X is a setting (NAME=VALUE), the Python of another environment, or a revision of the
        script's repository. FAIL means that the command as given is slower than with X. Default:
        measure the command alone.
    --budget MIN: With --against: stop after MIN minutes.
    --series NAME: Measure the command in short runs, record them as tonight (UTC) in this series,
        and compare them with its earlier nights. Default: none.
    --writable DIR: With --against or --series, let the command change files in this directory. All
        other files are protected; where hvdperf cannot protect them, this option allows the command
        to run anyway. The option may be repeated. Default: none.
    --results DIR: Write recordings and reports under this directory. Default: results.
    """

    steps: int | None = None
    check: bool = False
    against: str | None = None
    budget_minutes: float = BUDGET_MIN
    series: str | None = None
    writable: tuple[Path, ...] = ()
    results: Path = RESULTS


def run_script(*words: str, request: ScriptRequest) -> int:
    """Find out what limits your training script, unmodified. Put `hvdperf run --` before the
    command that you type, as in `hvdperf run -- horovodrun -np 2 python train.py`. The report
    follows the output of the command; the exit status is that of the command.

    [COMMAND ...]: The command to run, after --.
    """
    given = list(words)
    # As a shell does, which hands on no such word.
    while given and launch.SETTING.fullmatch(given[0]):
        name, _, value = given.pop(0).partition("=")
        os.environ[name] = value
    if not given:
        raise UserError("there is no command; give it after --: hvdperf run -- python train.py")
    command, steps = Command(tuple(given)), request.steps
    if steps is not None and steps < 1:
        raise UserError(f"--steps {steps}: must be 1 or more")
    if request.writable:
        for each in request.writable:
            if not each.is_dir():
                raise UserError(f"--writable {shown(each)}: no such directory")
        allowed = (str(each.absolute()) for each in request.writable)
        os.environ["HVDPERF_WRITABLE"] = os.pathsep.join(allowed)
    other = None
    if request.series is not None:
        check_series(request.series)
        if request.against is not None:
            raise UserError("--series and --against: give one of them")
    if request.against is not None:
        other = command.against(request.against)
        if not request.budget_minutes > 0:
            raise UserError(f"--budget {request.budget_minutes:g}: must be more than 0")
    directory = request.results.absolute() / "scripts" / session_name()
    with refusing(f"--results {shown(request.results.absolute())}: ", OSError):
        directory.mkdir(parents=True)
    if request.series is not None:
        night = short_runs.measure_night(command, request.series, directory, steps, _say)
        verdict = told_next_to_others(night, directory.parents[1])
        write_nights_page(directory.parents[1])
        return exit_status([verdict])
    if other is not None:
        budget_s = 60 * request.budget_minutes
        found = short_runs.compare(command, other, directory, steps, budget_s, _say)
        if not found.pairs:
            raise UserError("the comparison was ended before its first pair of runs")
        _show(short_runs.told(found), directory)
        return EXIT_STATUS[found.verdict]
    return _run_alone(command, directory, request)


def _run_alone(command: Command, directory: Path, request: ScriptRequest) -> int:
    """Run the command to its end, show what limits it, and return its exit status."""
    status = launch.run(command, directory, request.steps)
    launched = Launch(tuple(command.words), status)
    training = _read(directory, launched)
    if any(directory.glob("*.failed")):
        complain(f"{shown(directory)}: ranks could not write all that they recorded; {_ROOM}")
    elif training is None:
        ended = f"until it ended with status {status}, " if status else ""
        complain(
            f"no rank was seen: {ended}nothing in the command called hvd.init with a Python that "
            "reads PYTHONPATH (python -I, -E and -S do not)"
        )
    if training is None:
        return status
    if _show(lines(training), directory, launched):
        print(write_apart(directory, Path.cwd()))
    if request.check and training.wrong:
        return EXIT_STATUS[Verdict.INVALID]
    return status


def _read(directory: Path, launched: Launch) -> Training | None:
    """Return what is known of a run; None without a rank. Complain of what cannot be read."""
    ranks, refused = read_ranks(directory)
    for line in refused:
        complain(line)
    job, jobs = last_job(ranks)
    return training_of(job, jobs, launched) if job else None


def _show(told: Iterable[str], directory: Path, launched: Launch | None = None) -> bool:
    """Print what was found, and keep it with the command. Return whether there was room for that:
    the exit status says what was found, whatever happens to the report."""
    text = _text(told)
    print(f"\n{text}recorded: {shown(directory)}")
    try:
        if launched is not None:
            write_whole(directory / LAUNCH, encode(launched))
        write_whole(directory / REPORT, text)
    except OSError as error:
        complain(f"{shown(directory / REPORT)}: {error.strerror}; {_ROOM}")
        return False
    return True


def _text(told: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in told)


def report(*sessions: Path, request: ReportRequest) -> int:
    """Show the results of a session as a page, tables, or figures for a paper. It also combines
    several sessions, and shows a run of a script (hvdperf run).

    which session
        [SESSION ...]: Show this session, a directory under results/runs, or this run of a script, a
            directory under results/scripts. Several sessions, such as those of several days, are
            averaged; the intervals include the variance between sessions. Default: the newest
            session.
    """
    if sessions and request.results is not None:
        raise UserError("give SESSION, or --results DIR for the newest session there, not both")
    if len(sessions) != 1 or not any(sessions[0].glob(RECORDS)):
        return report_sessions(sessions, request)
    request.points()  # refuses options that contradict each other
    (directory,) = sessions
    training = _read(directory, read_launch(directory))
    if training is None:
        raise UserError(f"{shown(directory)}: no document of a rank can be read")
    name, form, out = directory.resolve().name, request.format_ or FORMATS[0], request.out
    if request.figures is not None:
        raise UserError("--figures: a run of a script has no figures for a paper; leave it out")
    if form == "terminal":
        text = _text(lines(training))
        print(shown(write_file(out, text)) if out else text, end="\n" if out else "")
    else:
        place = results_of(directory) / "report" / name
        print(write(report_of(training, name), form, out, place))
    return 0

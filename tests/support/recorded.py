"""Sessions that were measured and judged once, with all that their ranks reported, and a judge that
knows what the session knew. It does not know what documents do not hold:

- the weights after the reproducible training. They were compared then, and were alike; the Judge
  gets equal ones.
- the noise of the machine, unless the verdict rests on it; then it is in the document.
- the search for a rule in a file of thresholds: the rules are those of the documents.
"""

from __future__ import annotations

import math
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hvdperf.judge.judge import Judge, Rules
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.profile import Profile, Sampling
from hvdperf.plan.thresholds import Line, Thresholds, case_of
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import Case
from hvdperf.verdict import REGRESSION

FILE = Path(__file__).parents[1] / "judge" / "recorded" / "sessions.tar.xz"


@cache
def recorded_sessions() -> tuple[Archive, ...]:
    """Return the sessions of tests/judge/recorded, by name. Some of their cases were left out."""
    with TemporaryDirectory() as scratch:
        with tarfile.open(FILE) as packed:
            packed.extractall(scratch, filter="data")
        return tuple(read_session(path) for path in sorted(Path(scratch).iterdir()))


def rules(session: Archive) -> Rules:
    """Return the rules of a session: the looks and networks of its profile, the rules of its cases,
    and its slots."""
    document = session.session
    assert document is not None
    asked, fingerprint = document.asked, document.fingerprint
    settings: Mapping[str, Any] = asked.profile
    profile = Profile(
        name=document.profile,
        models=settings["models"],
        dataset=settings["dataset"],
        batch=settings["batch"],
        budget_s=math.inf,
        sampling=Sampling(looks=asked.looks),
        oversubscribed=settings["oversubscribed"],
    )
    cores = tuple(range(fingerprint["cores"]))
    slots = place([Offer(rank, "host", cores) for rank in range(len(fingerprint["rank_cores"]))])
    lines = [
        Line(case_of(case.comparison, nodes=1).parts, case.rule)
        for case in session.cases
        if case.rule is not None and case.rule != REGRESSION
    ]
    path = Path(asked.thresholds.name)
    return Rules(profile, Thresholds(path.stem, path, tuple(lines)), slots)


def judge_of(session: Archive, case: Case) -> Judge:
    """Return a judge that knows what the session knew when it judged the case."""
    failure = case.outcome.failure
    arms = [arm for arm in case.comparison.arms if failure and failure.arm == arm.name]
    trained = {
        launch.arm: launch
        for each in session.cases
        for measured in each.rounds
        for launch in measured.launches
        if launch.correctness
    }
    return Judge(
        rules(session),
        failures={arm: failure for arm in arms if failure},
        correctness=trained,
        weights=lambda arm: {},
        noise=lambda comparison: case.outcome.judgement.early,
    )

"""The page of a training script that was measured, as one HTML document like a session's page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hvdperf.inline import BOARD, assets
from hvdperf.report.formats.html import environment
from hvdperf.report.formats.text import printable
from hvdperf.report.words import plural
from hvdperf.script import told
from hvdperf.script.page.sections import sections
from hvdperf.script.training import Training


def page(training: Training, name: str) -> str:
    """Return the HTML document, which UTF-8 can encode. name: of the run."""
    wrong, limit = printable(training.wrong), printable(training.limit)
    count = plural(len(wrong), "check")
    template = environment(Path(__file__).parent).get_template("training.html.j2")
    return template.render(
        assets=assets(BOARD),
        title=printable(f"hvdperf run: {name}"),
        headline=f"{count} failed" if wrong else told.LIMITS,
        limits=told.LIMITS,
        wrong=wrong,
        # A check that fails is what limits, too.
        limit=None if limit.told in {each.what for each in wrong} else limit,
        first=printable(list(told.first(training))),
        facts=printable(_facts(training)),
        sections=printable(sections(training)),
        unseen=printable(list(told.unseen(training))),
    )


def _facts(training: Training) -> Mapping[str, str]:
    """Return facts about the run in a few words each, by name, the command last."""
    found = dict(told.facts(training))
    command = found.pop("command")
    steps, samples = training.longest.steps, training.samples_per_second
    if steps is not None:
        found["steps"] = f"{steps.count} of {steps.name}"
    if samples:
        found["speed"] = f"{samples:.1f} samples/s of all ranks"
    return {**found, "command": command}

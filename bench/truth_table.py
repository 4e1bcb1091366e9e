"""`python -m bench.truth_table [SESSION ...]`: how often performance gates err on the same runs.

It adds the sessions that are given (directories of results/runs/, of the profile `truth`) to the
data set in results/truth/, tries every rule on all recordings, prints the tables, and writes them
between the marks of docs/reference/truth_table.md, with the plot beside it. Without a network,
Otava cannot be installed the first time: then the tables are printed without it, and nothing is
written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import truth_otava
from bench.truth_data import DATA, SAME, Planted, Recording, add, read
from bench.truth_plot import drawn
from bench.truth_rules import ELSEWHERE, LONGER, LOOKS, OURS, RULES, Recorded, recorded_of
from bench.truth_score import OfArm, Score, Share, by_place, effect, planted_in, score
from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.machine.disturbance import taken_share
from hvdperf.paths import ROOT, shown
from hvdperf.report.words import plural
from hvdperf.stats import Interval

PAGE = ROOT / "docs" / "reference" / "truth_table.md"
BEGIN, END = "<!-- made by `make truth` from here -->", "<!-- to here -->"
# In words, what was planted, by the kind of the fault.
_WORDS = {
    "": "nothing",
    "slow": "each step {percent} % late on rank {rank}",
    "input": "each batch {percent} % of a step late on rank {rank}",
    "cycle": "Horovod waits up to 25 ms for tensors, on all ranks",
}


def words_of(planted: Planted) -> str:
    """Return in words what was planted."""
    percent = round(100 * ((planted.factor or 1) - 1))
    return _WORDS.get(planted.kind, planted.kind).format(percent=percent, rank=planted.rank)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def percent(share: Share) -> str:
    low, high = (100 * bound for bound in (share.low, share.high))
    return f"{100 * share.share:.0f} [{low:.0f}, {high:.0f}]"


# The parts of the page ---------------------------------------------------------------------------


def about(recordings: Sequence[Recording], arms: Mapping[str, Planted]) -> list[str]:
    """Return what was recorded."""
    rounds = [len(each.rounds) for each in recordings]
    pairs = sum(len(each.rounds) * (len(each.arms) - 1) for each in recordings)
    machine, stack = recordings[-1].machine, recordings[-1].stack
    rows = [
        [
            each.session,
            f"`{each.network}`",
            str(len(each.rounds)),
            f"{each.elapsed_seconds / 60:.0f}",
            f"{100 * _taken(each):.1f}",
        ]
        for each in recordings
    ]
    return [
        f"{plural(len(recordings), 'recording')} with {sum(rounds)} rounds: {pairs} pairs of a "
        f"healthy run and another one, of which {sum(rounds)} had no fault either. They ran on "
        f"{machine['cores']} cores of {machine['cpu_model']}, with Horovod {stack['horovod']}, "
        f"TensorFlow {stack['tensorflow']} and {stack['mpi_library']}.",
        "",
        *table(("session", "network", "rounds", "minutes", "% of the cores taken by others"), rows),
        "",
        "What was planted, and by how much it made the steps of the job longer (95 % interval):",
        "",
        *_effects(recordings, arms),
    ]


def _taken(recording: Recording) -> float:
    usages = [
        block.usage
        for each in recording.rounds
        for run in each.values()
        for block in run.blocks
        if block.usage is not None
    ]
    return taken_share(usages) if usages else 0.0


def _effects(recordings: Sequence[Recording], arms: Mapping[str, Planted]) -> list[str]:
    networks = sorted({each.network for each in recordings})
    recorded = recorded_of(recordings)
    rows = [
        [
            f"`{arm}`",
            words_of(planted),
            *(_longer(effect(recorded, arm, network)) for network in networks),
        ]
        for arm, planted in arms.items()
    ]
    return table(("arm", "planted", *(f"`{name}`, %" for name in networks)), rows)


def _longer(found: Interval) -> str:
    low, high = (100 * bound for bound in (found.lower, found.upper))
    return f"{100 * found.estimate:+.1f} [{low:+.1f}, {high:+.1f}]"


def main_table(scores: Sequence[Score], arms: Mapping[str, Planted]) -> list[str]:
    """Return the truth table."""
    faults = [arm for arm in arms if arm != SAME]
    head = ["rule", "false alarms, %", *(f"`{arm}` missed, %" for arm in faults), "seconds"]
    rows = []
    for each in scores:
        middle, low, high = each.seconds
        rows.append(
            [
                f"**{each.rule.name}**" if each.rule.ours else each.rule.name,
                *(_cell(each.arms.get(arm), arm) for arm in (SAME, *faults)),
                f"{middle:.0f} [{low:.0f}, {high:.0f}]",
            ]
        )
    return table(head, rows)


def _cell(found: OfArm | None, arm: str) -> str:
    """Return the share of wrong answers, and that of trials without one if there are some."""
    if found is None:
        return "-"
    wrong = percent(found.slower if arm == SAME else found.fine)
    nothing = found.nothing.share
    return f"{wrong}; {100 * nothing:.0f} open" if nothing else wrong


def places_table(
    found: Mapping[str, Mapping[str, Score]], arms: Mapping[str, Planted]
) -> list[str]:
    """Return the table of rules by the place that their healthy runs come from."""
    rows = [
        [name, place, *(_cell(of_place.arms.get(arm), arm) for arm in arms)]
        for name, places in found.items()
        for place, of_place in places.items()
        if of_place.arms
    ]
    wrong = (f"`{arm}` {'alarms' if arm == SAME else 'missed'}, %" for arm in arms)
    return table(("rule", "its healthy run", *wrong), rows)


def losses(scores: Sequence[Score], arms: Mapping[str, Planted]) -> list[str]:
    """Return in which respects other rules do better than ours in its own time."""
    own = next(each for each in scores if each.rule == OURS)
    others = [each for each in scores if not each.rule.ours]
    lines = []
    for arm in arms:
        mine = own.arms[arm]
        wrong = mine.slower if arm == SAME else mine.not_found
        better = [
            f"{each.rule.name} ({_share(each, arm)}{_alarms(each, arm)})"
            for each in others
            if arm in each.arms and _wrong(each, arm) < wrong.share
        ]
        what = "raises a false alarm in" if arm == SAME else f"does not find `{arm}` in"
        open_ = (
            f" ({100 * mine.nothing.share:.0f} % without a verdict)" if mine.nothing.share else ""
        )
        if better:
            lines.append(
                f"- It {what} {100 * wrong.share:.0f} % of trials{open_}. Fewer have: "
                f"{'; '.join(better)}."
            )
    seconds = [each.seconds[0] for each in others]
    lines.append(
        f"- It takes {own.seconds[0]:.0f} s in the middle; the others take {min(seconds):.0f} to "
        f"{max(seconds):.0f} s, with what they need on file."
    )
    return lines


def _wrong(each: Score, arm: str) -> float:
    found = each.arms[arm]
    return (found.slower if arm == SAME else found.not_found).share


def _share(each: Score, arm: str) -> str:
    return f"{100 * _wrong(each, arm):.0f} %"


def _alarms(each: Score, arm: str) -> str:
    return "" if arm == SAME else f", false alarms {100 * _wrong(each, SAME):.0f} %"


def sources(scores: Sequence[Score]) -> list[str]:
    """Return the table of what each rule is given, and where it is described."""
    rows = [[each.rule.name, each.rule.given, each.rule.source] for each in scores]
    return table(("rule", "what it is given", "described as"), rows)


def written(recordings: Sequence[Recording], scores: Sequence[Score]) -> list[str]:
    """Return the lines of the page between its marks."""
    recorded = recorded_of(recordings)
    arms = planted_in(recorded)
    return [
        *("## What was recorded", "", *about(recordings, arms)),
        *("", "## The table", "", *main_table(scores, arms)),
        *("", "![The rules beside each other: false alarms, misses and time](truth_table.svg)"),
        *("", "## Where hvdperf loses", "", *losses(scores, arms)),
        *("", "## What the reference is worth", ""),
        "The same rules, with healthy runs from elsewhere: of the same rounds, taking turns with",
        "the candidate, of the rounds before, or of another session of the network.",
        *("", *places_table(by_place(ELSEWHERE, recorded), arms)),
        *("", "## With as many runs as hvdperf", ""),
        f"The same with {LOOKS[0]} runs on either side, which hvdperf needs to say FAIL: the mean",
        "of their steps, all steps together in the t-test on steps, and the mean step of each run",
        "for benchstat.",
        *("", *places_table(by_place(LONGER, recorded), arms)),
        *("", "## The rules", "", *sources(scores)),
    ]


def put_into(page: str, lines: Sequence[str]) -> str:
    """Return the page with these lines between its marks. Raises UserError without marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"the page lacks {BEGIN!r} or, after that, {END!r}")
    return "\n".join([before + begin, "", *lines, "", end + after])


def titles(arms: Mapping[str, Planted]) -> dict[str, str]:
    """Return the titles of the plot's panels, in two lines."""
    return {arm: "false alarms\n(aa)" if arm == SAME else f"{arm}\nnot found" for arm in arms}


def scored(recorded: Sequence[Recorded]) -> tuple[list[Score], str]:
    """Return the scores of all rules, and why Otava is not among them; "" if it is."""
    found = [score(rule, recorded) for rule in RULES]
    place = next(number for number, each in enumerate(found) if each.rule.ours)
    try:
        rule = truth_otava.rule(recorded, truth_otava.install())
    except UserError as error:
        return [each for each in found if each.arms], str(error)
    found.insert(place, score(rule, recorded))
    return [each for each in found if each.arms], ""


def add_or_tell(session: Path, data: Path) -> None:
    """Add a session to the data set, or tell why it is left out."""
    try:
        print(f"added: {', '.join(add(session, data))}", flush=True)
    except UserError as error:
        print(f"left out: {error}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.truth_table", description=__doc__)
    parser.add_argument(
        "sessions", nargs="*", type=Path, metavar="SESSION", help="to add to the data set"
    )
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="results/truth")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE", help=shown(PAGE))
    given = parser.parse_args(arguments)
    try:
        for session in given.sessions:
            add_or_tell(session, given.data)
        recordings = read(given.data)
        recorded = recorded_of(recordings)
        scores, missing = scored(recorded)
        lines = written(recordings, scores)
        print(*lines, sep="\n", flush=True)
        if missing:
            sys.exit(f"bench.truth_table: {missing}; nothing is written")
        page = put_into(given.page.read_text(), lines)
        plot = drawn(scores, titles(planted_in(recorded)))
        write_whole(given.page.with_suffix(".svg"), plot.encode())
        write_whole(given.page, page.encode())
    except (UserError, OSError) as error:
        sys.exit(f"bench.truth_table: {error}")
    print(f"\nwritten to {shown(given.page)}, with looks at {', '.join(map(str, LOOKS))} rounds")


if __name__ == "__main__":
    main()

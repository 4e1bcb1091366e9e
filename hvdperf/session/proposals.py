"""Proposes limits from the sessions of a machine, by the number of false FAILs a year that they
cause. A false FAIL is a FAIL on a night on which nothing has changed.

A round's ln ratio is c + B + e: c is the case's centre; B is the night's own deviation, with a
standard deviation `between`; e is the round's, with a standard deviation `rounds`. A night FAILs if
one of its full looks does (hvdperf.interim). That is computed for the next night, of which only
some sessions are known, so that few sessions give high numbers.

The chance for known standard deviations is that of a normal bound (_failing_bounds). The variance
of sessions' centres is unknown: for J sessions with the variance s^2, (J - 1) s^2 / variance has a
chi-square distribution with J - 1 degrees of freedom. The share that comes from the rounds is taken
off, and what is left is never below 0 (Searle, Casella and McCulloch, Variance Components, 1992,
chapter 3). Early looks are left out, because they only add PASSes; a wider bound for correlated
rounds is, too.
docs/error_rates.md compares the numbers with simulated nights.
"""

from __future__ import annotations

import json
import math
import random
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, pstdev, variance

import numpy as np
import numpy.typing as npt

from hvdperf.errors import UserError, refusing
from hvdperf.interim import fail_alpha
from hvdperf.machine.host import Machine
from hvdperf.paths import shown
from hvdperf.plan import thresholds
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.plan.questions import throughput
from hvdperf.plan.thresholds import Case
from hvdperf.records.archive import Archive, throughputs_by_nodes
from hvdperf.records.documents import SessionDocument
from hvdperf.records.fingerprinting import machine_of
from hvdperf.stats import NotMeasurable, fewest_bounded, hodges_lehmann
from hvdperf.verdict import FEWEST_ROUNDS, Band, Ceiling, Rule, Verdict

Array = npt.NDArray[np.float64]

# Sessions of a year, for the number of false FAILs.
NIGHTS = 365
# The false FAILs a year that the lines of a proposed file mean together: so few that 19 of 20 files
# from few sessions mean one at most.
EXPECTED_A_YEAR = 0.2
# From fewer sessions, a limit that holds lies more than twice as far as one from many.
FEWEST_SESSIONS = 8
# The number of simulated sessions for the bound that FAILs.
_SIMULATED = 2000
_SEED = 20181231
# The largest distance of a limit from the centre, and the error of one, on the scale of logarithms.
FARTHEST, _NEAR_ENOUGH = 8.0, 1e-4
# Stands for a standard deviation of 0, by which nothing can be divided.
_LEAST_ERROR = 1e-9
# Half the number of steps by which the distribution of a variance is summed up, and their width on
# the scale of the probability's logit. The outermost probability is 1 / (1 + exp(30)) = 1e-13.
_STEPS, _STEP = 120, 0.25


@dataclass(frozen=True)
class Scatter:
    """The noise of a case, of sessions in which nothing has changed.

    sessions: their number J. centre: the mean of the sessions' estimates. of_centres: variance of
    these estimates. of_rounds: variance of rounds within a session, from `freedom` degrees of
    freedom. count: number of a session's rounds, the harmonic mean.
    """

    sessions: int
    centre: float
    of_centres: float
    of_rounds: float
    freedom: int
    count: float

    @property
    def rounds(self) -> float:
        """Return the standard deviation of rounds within a session."""
        return math.sqrt(self.of_rounds)

    @property
    def between(self) -> float:
        """Return the estimated standard deviation between sessions beyond that of their rounds."""
        return math.sqrt(max(self.of_centres - self.of_rounds / self.count, 0.0))


def scatter(sessions: Sequence[Sequence[float]]) -> Scatter:
    """Return the noise of a case. sessions: its ln ratios, by session, of two sessions or more.

    Raises NotMeasurable if no session has two rounds, or if an observation is not finite.
    """
    if not any(len(values) > 1 for values in sessions):
        raise NotMeasurable("no session has two rounds")
    centres = [hodges_lehmann(values, alpha=0.5).estimate for values in sessions]
    freedom = sum(len(values) - 1 for values in sessions)
    squares = sum((len(values) - 1) * variance(values) for values in sessions if len(values) > 1)
    count = 1 / fmean(1 / len(values) for values in sessions)
    return Scatter(
        len(sessions), fmean(centres), variance(centres), squares / freedom, freedom, count
    )


def false_fail(rule: Rule, known: Scatter, looks: Sequence[int]) -> float:
    """Return the probability that the next session of an unchanged build FAILs by the rule.

    looks: the full looks of that session.
    """
    distances = _distances(rule, known.centre)
    return sum(_beyond(distance, rule.alpha, known, looks) for distance in distances)


def distance_for(probability: float, alpha: float, known: Scatter, looks: Sequence[int]) -> float:
    """Return how far a limit has to lie from the centre, on the scale of logarithms, for the next
    session of an unchanged build to FAIL by it with no higher probability; at most FARTHEST.

    alpha: the level of the rule's bounds.
    """
    near, far = 0.0, FARTHEST
    while far - near > _NEAR_ENOUGH:
        middle = (near + far) / 2
        if _beyond(middle, alpha, known, looks) > probability:
            near = middle
        else:
            far = middle
    return far


def of_year(lines: Iterable[tuple[Rule, Scatter]], looks: Sequence[int]) -> float:
    """Return how many false FAILs a year of NIGHTS is to expect of all lines together.

    lines: the rule and the noise of each case. looks: the full looks of a night.
    """
    return NIGHTS * sum(false_fail(rule, known, looks) for rule, known in lines)


def year_in_words(expected: float) -> str:
    return f"{expected:.2f} false FAILs expected in a year of {NIGHTS} nights if nothing changes"


def _distances(rule: Rule, centre: float) -> list[float]:
    """Return how far the limits of a rule are from the centre, on the side of FAIL."""
    if isinstance(rule, Band):
        return [centre - math.log(rule.low), math.log(rule.high) - centre]
    if isinstance(rule, Ceiling):
        return [math.log(rule.at_most) - centre]
    return [centre - math.log(rule.fail_below)]


def _beyond(distance: float, alpha: float, known: Scatter, looks: Sequence[int]) -> float:
    """Return the probability that the next session FAILs by a limit at this distance."""
    from scipy.special import ndtr  # imported here, because the import takes a while

    freedom = known.sessions - 1
    chi_squares, shares = _chi_squares(freedom)
    of_mean = known.of_rounds / known.count
    of_centres = np.maximum(known.of_centres * freedom / chi_squares, of_mean)
    # The next session's centre deviates from the mean of the known ones.
    deviates = of_centres - of_mean + of_centres / known.sessions
    fails = np.zeros(len(deviates))
    for mean, deviation in _failing_bounds(tuple(looks), alpha):
        # Without any noise, a figure FAILs if it is beyond its limit at all.
        error = np.maximum(np.sqrt(deviates + known.of_rounds * deviation**2), _LEAST_ERROR)
        fails += ndtr(-(distance + known.rounds * mean) / error)
    return min(float(shares @ np.minimum(fails, 1.0)), 1.0)


@cache
def _failing_bounds(looks: tuple[int, ...], alpha: float) -> tuple[tuple[float, float], ...]:
    """Return mean and standard deviation of bounds that FAIL a session of standard normal rounds,
    if they are below the limit: the lowest bound of all looks, and that of the first look.

    The lowest one is nearly normal, but for the lower tail, which is that of the first look; so
    the sum of both probabilities is at most 1.7 times the true one. Looks with too few rounds for a
    finite bound cannot FAIL.
    """
    draw = random.Random(_SEED)
    levels = [(look, fail_alpha(look, alpha, looks)) for look in looks]
    levels = [(look, level) for look, level in levels if fewest_bounded(level) <= look]
    if not levels:
        return ()
    sessions = [[draw.gauss(0.0, 1.0) for _ in range(looks[-1])] for _ in range(_SIMULATED)]
    of_looks = [
        [hodges_lehmann(values[:look], level).upper for look, level in levels]
        for values in sessions
    ]
    lowest, first = [min(each) for each in of_looks], [each[0] for each in of_looks]
    series = [lowest] if len(levels) == 1 else [lowest, first]
    return tuple((fmean(values), pstdev(values)) for values in series)


@cache
def _chi_squares(freedom: int) -> tuple[Array, Array]:
    """Return values of a chi-square distribution and their shares of it, in steps that are fine in
    its tails."""
    from scipy.special import chdtri, expit  # imported here, because the import takes a while

    steps = _STEP * np.arange(-_STEPS, _STEPS + 1)
    shares = expit(steps + _STEP / 2) - expit(steps - _STEP / 2)
    return chdtri(freedom, expit(steps)), shares


# Limits that hold ---------------------------------------------------------------------------------


def propose(
    observations: Mapping[Case, Sequence[Sequence[float]]], looks: Sequence[int], machine: Machine
) -> str:
    """Return a file of thresholds for machines like this one, which unchanged builds PASS
    (distance_to_pass), and which mean EXPECTED_A_YEAR false FAILs, the same share for each case.

    observations: ln ratios of each case, by session. looks: the full looks of a session. Raises
    UserError for a case with fewer than FEWEST_SESSIONS sessions or with an observation that is not
    finite, and if the sessions of a case differ so much that no limit holds.
    """
    share = EXPECTED_A_YEAR / NIGHTS / max(len(observations), 1)
    held, written = [], []
    for case, sessions in observations.items():
        if len(sessions) < FEWEST_SESSIONS:
            raise UserError(
                f"{case.key}: {len(sessions)} sessions are too few; measure at least "
                f"{FEWEST_SESSIONS}"
            )
        values = [value for each in sessions for value in each]
        with refusing(f"{case.key}: no threshold can be proposed: ", NotMeasurable):
            known = scatter(sessions)
        to_pass = thresholds.distance_to_pass(values, looks[0])
        narrow = thresholds.rule_at(case.question, known.centre, to_pass)
        ends = 2 if isinstance(narrow, Band) else 1
        distance = distance_for(share / ends, narrow.alpha, known, looks)
        if distance == FARTHEST:
            raise UserError(
                f"{case.key}: its sessions differ by {100 * known.between:.0f} %, so no limit "
                "holds; find out why, or leave its network out"
            )
        rule = thresholds.rule_at(case.question, known.centre, max(to_pass, distance))
        held.append((rule, known))
        written += [
            f"# {math.exp(known.centre):.3g}; rounds differ by {100 * known.rounds:.1f} %, "
            f"sessions by {100 * known.between:.1f} % more; {known.sessions} sessions, "
            f"{len(values)} rounds",
            thresholds.written(case, rule),
        ]
    told = f"{year_in_words(of_year(held, looks))}, all cases together."
    kind, name = thresholds.class_of(machine)
    sessions_read = max(map(len, observations.values()), default=0)
    lines = [
        *(f"# {line}" for line in textwrap.wrap(told, 98)),
        f"# Read from up to {sessions_read} sessions of a case; full looks of a night after "
        f"{', '.join(map(str, looks))} rounds.",
        f"label = {json.dumps(f'{machine.description} (proposed)', ensure_ascii=False)}",
        "",
        "[match]",
        f'device = "{kind}"',
        f"{thresholds.NAME_OF[kind]} = {json.dumps(name, ensure_ascii=False)}",
        "",
        "[thresholds]",
        *written,
    ]
    return "\n".join(lines) + "\n"


# Sessions ----------------------------------------------------------------------------------------

# Thresholds hold for one kind of hardware: sessions that differ in these fields are not pooled.
_HARDWARE = ("cpu_model", "cores", "gpus", "gpu_model")

Observations = Mapping[Case, Sequence[Sequence[float]]]


def proposal(archives: Sequence[Archive]) -> tuple[str, str]:
    """Return a file of thresholds that hold, from the rounds of these sessions, and a line on the
    cases with too few sessions and how to measure them; "" if there are none.

    Raises UserError if a session cannot be read or had a fault injected, if sessions are of
    different machines, or if no case has enough sessions."""
    sessions = _of_one_machine(archives)
    found = _observations(archives)
    enough = {case: values for case, values in found.items() if len(values) >= FEWEST_SESSIONS}
    few = {case: values for case, values in found.items() if case not in enough}
    command = next((each.command for each in reversed(sessions) if each.command), "pytest perf/")
    looks = _looks(sessions)
    too_few = _too_few(few, command) if few else ""
    if not enough:
        raise UserError(f"no thresholds proposed: {too_few or 'no case can be trusted'}")
    machine = machine_of(sessions[0].fingerprint)
    return propose(enough, looks, machine), too_few


def _of_one_machine(archives: Sequence[Archive]) -> list[SessionDocument]:
    """Return the documents of the sessions, of one machine. Raises UserError if they are of
    several, or if a fault was injected into one."""
    sessions: list[SessionDocument] = []
    for archive in archives:
        session, where = archive.session, shown(archive.directory)
        if session.asked.inject:
            raise UserError(f"{where}: a fault was injected (--inject)")
        sessions.append(session)
        first: Mapping[str, object] = sessions[0].fingerprint
        theirs: Mapping[str, object] = session.fingerprint
        if other := [name for name in _HARDWARE if theirs[name] != first[name]]:
            raise UserError(
                f"{where}: of another machine than {shown(archives[0].directory)}: "
                f"{', '.join(other)} differ"
            )
    return sessions


def _looks(sessions: Sequence[SessionDocument]) -> tuple[int, ...]:
    """Return the full looks of all sessions: each of them may FAIL a case."""
    found = {look for each in sessions for look in each.asked.looks or (FEWEST_ROUNDS,)}
    return tuple(sorted(found))


def _too_few(few: Observations, command: str) -> str:
    """Return a line on the cases with too few sessions: the number of further ones, and their
    command."""
    case, sessions = min(few.items(), key=lambda item: len(item[1]))
    more = FEWEST_SESSIONS - len(sessions)
    return (
        f"{len(few)} case{'s' * (len(few) > 1)} with fewer than {FEWEST_SESSIONS} sessions: "
        f"{case.key} has {len(sessions)}; give {more} more session{'s' * (more > 1)}, by: {command}"
    )


def _observations(archives: Iterable[Archive]) -> dict[Case, list[list[float]]]:
    """Return the ln ratios of each case whose evidence is sound, by session. A case that is INVALID
    only because it has no threshold yet counts. Of throughputs, all launches count, whichever
    cases asked for them."""
    archives = list(archives)
    found: dict[Case, list[list[float]]] = {}
    for case in (case for archive in archives for case in archive.cases):
        invalid = case.verdict is Verdict.INVALID and not case.is_sound
        by_line = case.question.spec.asked_by_line
        if case.judged_as is not JudgedAs.THRESHOLD or case.failed or invalid or by_line:
            continue
        values = [value for value in case.outcome.observations if math.isfinite(value)]
        if values:
            found.setdefault(
                thresholds.case_of(case.comparison, len(case.replicas_per_node)), []
            ).append(values)
    for archive in archives:
        for (workload, size, nodes), launches in throughputs_by_nodes(archive).items():
            speed = thresholds.case_of(throughput(workload, size), nodes)
            found.setdefault(speed, []).append([math.log(each) for each in launches])
    return found

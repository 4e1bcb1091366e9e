"""What is known of a training: the content of its report, which the terminal and the page show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hvdperf.script.checks import Problem, problems
from hvdperf.script.limits import Limit, limit_of
from hvdperf.script.recorded import NOT_KEPT, Launch, Rank
from hvdperf.script.stalls import stall_of
from hvdperf.script.terms import Parts, parts_of

# A phase of the start-up that takes less, in seconds, belongs to the script itself.
_LEAST_PHASE = 0.05


@dataclass(frozen=True)
class Start:
    """The start-up of a rank, from its process to the end of its first step. seconds: of all.
    phases: their seconds, in their order."""

    rank: int
    seconds: float
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Use:
    """What a rank used after the warm-up. cores: on average. delayed: the share of the time for
    which its main thread waited for a core."""

    cores: float
    delayed: float


@dataclass(frozen=True)
class Training:
    """What is known of a training. ranks: of the job that ended last. jobs: how many there were.
    launch: of its command."""

    ranks: Sequence[Rank]
    jobs: int
    wrong: Sequence[Problem]
    parts: Parts | None
    limit: Limit
    launch: Launch = NOT_KEPT

    @property
    def samples_per_second(self) -> float | None:
        """Return the samples of all ranks a second, after the warm-up; None if they are unknown."""
        of_ranks = [rank.steps.samples_per_second if rank.steps else None for rank in self.ranks]
        return None if None in of_ranks or not of_ranks else sum(filter(None, of_ranks))

    @property
    def has_batches(self) -> bool:
        """Return whether a batch of a training step was seen."""
        return any(rank.steps is not None and rank.steps.samples for rank in self.ranks)

    @property
    def longest(self) -> Rank:
        """Return the rank whose steps took most time together."""
        return max(self.ranks, key=lambda each: each.steps.sums if each.steps else 0.0)

    @cached_property
    def start(self) -> Start | None:
        """Return the start of the rank that was slowest to its second step; None without steps."""
        rank = max(self.ranks, key=lambda each: each.steps.begun if each.steps else 0.0)
        return start_of(rank)

    @cached_property
    def use(self) -> Mapping[int, Use]:
        """Return what ranks used, by rank; without those of which it is unknown."""
        known = {rank.rank: rank.steps.cpu for rank in self.ranks if rank.steps is not None}
        return {
            rank: Use(cpu[1] / cpu[0], cpu[2] / cpu[0])
            for rank, cpu in known.items()
            if cpu is not None and cpu[0] > 0
        }

    @property
    def delayed(self) -> float:
        """Return the largest share of the time for which a rank waited for a core."""
        return max((each.delayed for each in self.use.values()), default=0.0)

    @property
    def seconds(self) -> float:
        """Return the seconds from the first process of a rank to the end of the last one."""
        began = min(rank.marks["process"] for rank in self.ranks)
        return max(rank.written_at for rank in self.ranks) - began

    @property
    def after(self) -> tuple[Rank, float]:
        """Return the rank that went on for longest after its last step, and for how many seconds;
        0 if that is unknown."""
        ended = [rank.steps.ended if rank.is_over and rank.steps else 0.0 for rank in self.ranks]
        seconds = [
            (rank.written_at - at) * bool(at) for rank, at in zip(self.ranks, ended, strict=True)
        ]
        longest = max(seconds)
        return self.ranks[seconds.index(longest)], longest

    @property
    def residual(self) -> float:
        """Return the largest share of a usual step that its terms do not explain; 0 without."""
        by_rank = self.parts.by_rank if self.parts is not None else ()
        return max((abs(each.residual) / each.period for each in by_rank), default=0.0)

    def few(self, most: int) -> Sequence[int]:
        """Return the places of at most so many ranks, in the order of `ranks`, or if that leaves
        some out, from the fastest half of them to the slowest half by what a rank does by
        itself."""
        places = range(len(self.ranks))
        if len(places) <= most or self.parts is None:
            return places[:most]
        by_rank = self.parts.by_rank
        ordered = sorted(places, key=lambda place: by_rank[place].own)
        return [*ordered[: most // 2], *ordered[-(most - most // 2) :]]


def training_of(ranks: Sequence[Rank], jobs: int, launch: Launch = NOT_KEPT) -> Training:
    """Return what is known of a training. ranks: of one job, at least one."""
    wrong, parts = problems(ranks), parts_of(ranks)
    limit = limit_of(parts, wrong, ranks)
    if not wrong and launch.status and not any(rank.steps and rank.steps.count for rank in ranks):
        limit = Limit(
            f"the command ended with status {launch.status} before its first step was done",
            "see its own messages above the report",
        )
    stall = stall_of(ranks)
    if stall:
        limit = Limit(f"a stall: {stall}", "call each exchange on all ranks, in the same order")
    return Training(ranks, jobs, wrong, parts, limit, launch)


def start_of(rank: Rank) -> Start | None:
    """Return the start-up of a rank; None without steps."""
    if rank.steps is None:
        return None
    began = rank.marks["process"]
    phases = {"interpreter": rank.marks["python"] - began}
    seen = 0.0
    for name, begin, end in rank.events:
        if begin > rank.steps.begun:
            break
        own = end - max(begin, seen)
        if own > _LEAST_PHASE:
            phases[name] = phases.get(name, 0.0) + own
        seen = max(seen, end)
    seconds = rank.steps.begun - began
    phases["the script"] = max(0.0, seconds - sum(phases.values()))
    first = rank.steps.rows[0] if rank.steps.rows else None
    if first is not None and not first.number:
        phases["first step"] = first.end - first.begin
        seconds += first.end - first.begin
    return Start(rank.rank, seconds, phases)

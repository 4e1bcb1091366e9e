"""The outcome of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from hvdperf.json_records import Figures, Number
from hvdperf.judge.cause import Attribution
from hvdperf.judge.detection import Detection
from hvdperf.judge.scaling_breakdown import ScalingBreakdown
from hvdperf.launch.group import Failure
from hvdperf.measure.records import Round
from hvdperf.plan.comparisons import Comparison
from hvdperf.verdict import Judgement, Verdict


@dataclass(frozen=True)
class Outcome(Figures):
    """A comparison with its judgement and everything that the judgement rests on.

    observations: ln of the figure, one per round. failure: the launch that failed, if one did.
    threshold_line: a line for the file of thresholds, if it has none. breakdown: of a case on wall
    time. detection: reported verdict and attribution of an injected fault. taken_over: whether its
    rounds were measured before the session was resumed. cause: of a FAIL with a figure.
    """

    comparison: Comparison
    judgement: Judgement
    observations: tuple[Number, ...] = ()
    rounds: tuple[Round, ...] = ()
    failure: Failure | None = None
    threshold_line: str = ""
    breakdown: ScalingBreakdown | None = None
    detection: Detection | None = None
    taken_over: bool = False
    cause: Attribution | None = None

    @property
    def passed(self) -> bool:
        return self.judgement.verdict is Verdict.PASS

    @property
    def is_sound(self) -> bool:
        """Return whether the figure was measured with sound evidence, be it good or bad.

        An INVALID case is sound only if nothing but its threshold was missing. A case is not sound
        if a launch failed, if it is NOT JUDGED or NOT RUN, or if other programs disturbed all of
        its rounds, which leaves no observation."""
        verdict = self.judgement.verdict
        shown_only = verdict in (Verdict.NOT_JUDGED, Verdict.NOT_RUN)
        if not self.observations or self.judgement.figure is None or self.failure or shown_only:
            return False
        return verdict is not Verdict.INVALID or bool(self.threshold_line)

    @property
    def reported(self) -> Verdict:
        """Verdict on the candidate itself. The judgement of a fault case says whether this verdict
        is the expected one."""
        return self.detection.reported if self.detection is not None else self.judgement.verdict

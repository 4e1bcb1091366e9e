"""Tells which settings change the figures of a session, from its fingerprint and its cases: for
the head of the terminal's summary and of the page, and beside each verdict."""

from __future__ import annotations

from collections.abc import Iterable

from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.settings import Places, Setting, places_of, precisions
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.fingerprinting import settings_of

# The most settings that are named beside a verdict.
_NAMED = 3


def head(known: Fingerprint, comparisons: Iterable[Comparison]) -> list[str]:
    """Return a line for each setting of a session: its value, what it changes and which figures it
    touches, or why it has no effect. known: the session's fingerprint. comparisons: its cases."""
    places = _places(known)
    return [each.told(places) for each in (*settings_of(known), *precisions(comparisons, places))]


def beside(known: Fingerprint, comparison: Comparison) -> str:
    """Return the settings that touch the figure of a case, such as `with HOROVOD_CYCLE_TIME=100`;
    "" if none is known to."""
    places = _places(known)
    every: tuple[Setting, ...] = (*settings_of(known), *precisions([comparison], places))
    found = [str(each) for each in every if each.touches(comparison, places)]
    if not found:
        return ""
    more = f" and {len(found) - _NAMED} more" if found[_NAMED:] else ""
    return f"with {', '.join(found[:_NAMED])}{more}"


def _places(known: Fingerprint) -> Places:
    return places_of(known["launcher"], known["gpus"])

"""Names of figures are legal, whatever a network is called, and two stay two."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from report.content import Figure, Table
from report.slug import slug, unique
from tests.report.cases import HOSTILE

TABLE = Table((), ())


def test_a_name_that_is_legal_stays_as_it_is():
    assert slug("ledger", "waterfall", "vgg_16_s", "np2") == "ledger-waterfall-vgg_16_s-np2"


def test_hostile_names_are_legal_and_differ():
    names = [slug("steps", name) for name in HOSTILE]
    assert all(re.fullmatch(r"steps-[a-z0-9_]+", name) for name in names)
    assert len(set(names)) == len(HOSTILE)
    assert max(map(len, names)) < 60


@given(st.text(), st.text())
def test_two_names_stay_two(one, other):
    assert (slug(one) == slug(other)) == (one == other)
    assert re.fullmatch(r"[a-z0-9_]+", slug(one))


def test_a_name_that_comes_again_is_numbered():
    figures = [Figure(name, "", "", TABLE) for name in ("a", "b", "a", "a", "a-2")]
    assert [each.name for each in unique(figures)] == ["a", "b", "a-2", "a-3", "a-2-2"]

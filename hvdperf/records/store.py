"""Writes the cases of a session, and each launch of their rounds once. archive.py reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from hvdperf.files import write_record
from hvdperf.plan.comparisons import RoundGroup
from hvdperf.records.documents import (
    ROUNDS,
    Case,
    CaseDocument,
    Head,
    RoundsDocument,
    file_name,
)
from hvdperf.records.outcome import Conclusion
from hvdperf.records.rounds import Round


class Store:
    """The documents of cases and rounds in the directory of a session. Each file is written whole
    or not at all, and the rounds of a case before it: whenever the session ends, every case on disk
    has its rounds there, too."""

    def __init__(
        self, directory: Path, rounds: Mapping[RoundGroup, Mapping[int, Round]] | None = None
    ) -> None:
        """rounds: those that are on disk, by their numbers."""
        self._directory = directory
        self._rounds = {group: dict(known) for group, known in (rounds or {}).items()}
        # Groups with launches that are not on disk.
        self._grown: set[RoundGroup] = set()

    def write(self, case: Case) -> None:
        """Write a case, and its rounds if they are not on disk. Raises OSError."""
        self._add(case)
        if case.round_group in self._grown:
            self._write_rounds(case)
        head = {field.name: getattr(case, field.name) for field in fields(Head)}
        outcome = {field.name: getattr(case.outcome, field.name) for field in fields(Conclusion)}
        numbers = tuple(measured.number for measured in case.rounds)
        document = CaseDocument(**head, outcome=Conclusion(**outcome), rounds=numbers)
        write_record(self._directory / f"{file_name(case.name)}.json", document)

    def _add(self, case: Case) -> None:
        """Add the launches that no case before had."""
        known = self._rounds.setdefault(case.round_group, {})
        for measured in case.rounds:
            stored = known.setdefault(measured.number, Round(measured.number, measured.schedule))
            new = [launch for launch in measured.launches if not stored.has(launch.arm)]
            if new:
                stored.launches += new
                self._grown.add(case.round_group)

    def _write_rounds(self, case: Case) -> None:
        group, known = case.round_group, self._rounds[case.round_group]
        path = self._directory / ROUNDS / f"{group.name}.json"
        path.parent.mkdir(exist_ok=True)
        rounds = tuple(known[number] for number in sorted(known))
        write_record(
            path, RoundsDocument(case.format, case.session, case.written_at, group, rounds)
        )
        self._grown.discard(group)

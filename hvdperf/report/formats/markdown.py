"""The report as GitHub-flavoured Markdown, for the summary of a CI job ($GITHUB_STEP_SUMMARY).

Cases that did not pass come first, then the board, then the folded tables of the sections. Only
the page has plots. GitHub refuses a summary above 1 MiB as a whole, so tables are left out, from
the end on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hvdperf.report.content import Figure, Report, Section, Table
from hvdperf.report.formats.cells import lines_of, one_line, shown
from hvdperf.report.formats.escaping import fenced, html, inline
from hvdperf.report.formats.headline import MEANINGS, blames, headline, neutral, others
from hvdperf.verdict import Verdict

# GitHub's limit of the whole summary in UTF-8, and the room for the line that lists omitted parts.
LIMIT_BYTES = 1024 * 1024
_SPARE_BYTES = 16 * 1024
# The page has the rest.
_ROWS_OF_A_SECTION = 200
_OUTPUT_LINES = 40
_LONGEST_TEXT = 2000
_NAMED = 20


@dataclass(frozen=True, eq=False)
class _Frame:
    """The text around the parts of a section."""

    opening: str = ""
    closing: str = ""


_OPEN = _Frame()


@dataclass(frozen=True)
class _Part:
    """A part of the summary, written whole or not at all. name: its name in the list of parts that
    are left out."""

    name: str
    text: str
    frame: _Frame = _OPEN


def markdown(report: Report) -> str:
    """Return the summary, of fewer than LIMIT_BYTES bytes in UTF-8."""
    said = [_headline(report)]
    left = LIMIT_BYTES - _SPARE_BYTES - _bytes(said[0])
    parts = list(_parts(report))
    frame, taken = _OPEN, 0
    for part in parts:
        same = part.frame is frame
        added = part.text if same else f"{frame.closing}{part.frame.opening}{part.text}"
        if _bytes(added) + _bytes(part.frame.closing) > left:
            break
        said.append(added)
        left -= _bytes(added)
        frame = part.frame
        taken += 1
    said.append(frame.closing)
    if taken < len(parts):
        said.append(_left_out([part.name for part in parts[taken:]]))
    return "".join(said)


def _parts(report: Report) -> Iterator[_Part]:
    """Yield everything below the headline, in order."""
    if report.facts:
        rows = [f"| {_cell(name)} | {_cell(fact)} |" for name, fact in report.facts.items()]
        yield _Part("facts", _block("| | |", "|---|---|", *rows))
    for kind, lines in (("Warning", report.warnings), ("Left out", report.left_out)):
        for line in lines:
            yield _Part("a warning", _block(f"> **{kind}**: {_text(line)}"))
    yield from _not_passed(report)
    yield from _not_judged(report)
    yield _Part("the table of all cases", _figure("##", report.board, _table(report.board.table)))
    for section in report.sections:
        yield from _section(section)


def _headline(report: Report) -> str:
    said = f"**{headline(report)}**"
    if report.verdict is not None:
        said += f": {MEANINGS[report.verdict]}"
    rest = f" {others(report)}." if others(report) else ""
    return _block(f"# {_text(report.title)}") + _block(f"{said}.{rest}")


def _not_passed(report: Report) -> Iterator[_Part]:
    """Yield the cases that did not pass, the worst verdict first, each with its note and output."""
    begun = False
    for blame in blames(report):
        for note in blame.notes:
            blocks = [] if begun else ["## What did not pass"]
            begun = True
            case = f"**{blame.verdict.value}** {_text(note.case)}"
            first, *more = map(_text, note.paragraphs or ("",))
            blocks += [f"{case}: {first}" if first else case, *more]
            output = [line for each in note.output for line in lines_of(each)]
            if output:
                blocks.append(fenced(line[:_LONGEST_TEXT] for line in output[-_OUTPUT_LINES:]))
            yield _Part(f"why {note.case} did not pass", "".join(map(_block, blocks)))


def _not_judged(report: Report) -> Iterator[_Part]:
    """Yield each reason for not judging once, because many cases share one."""
    reasons = Counter(
        note.paragraphs[0]
        for note in neutral(report)
        if note.verdict is Verdict.NOT_JUDGED and note.paragraphs
    )
    for reason, count in reasons.items():
        said = f"**{Verdict.NOT_JUDGED.value}** ({count}): {_text(reason)}"
        yield _Part("why cases are not judged", _block(said))


def _section(section: Section) -> Iterator[_Part]:
    """Yield the parts of a section, folded because a summary is read from the top."""
    # GitHub reads HTML up to the next empty line, and Markdown from there on.
    opening = _block("<details>", f"<summary>{html(_short(section.title))}</summary>")
    opening += _block(_text(section.intro))
    if section.missing:
        opening += _block(_text(section.missing))
    frame = _Frame(opening, _block("</details>"))
    if not section.figures:
        yield _Part(section.title, "", frame)
    # Two plots of the same numbers have equal tables, of which only the first is written.
    told: list[Figure] = []
    for figure in section.figures:
        same = next((other for other in told if other.table == figure.table), None)
        if same is not None:
            table = f"Its numbers are those of: {_text(same.title)}"
        elif len(figure.table.rows) > _ROWS_OF_A_SECTION:
            table = f"{len(figure.table.rows)} rows: see the page."
        else:
            table = _table(figure.table)
        told.append(figure)
        yield _Part(figure.title, _figure("###", figure, table), frame)


def _figure(level: str, figure: Figure, table: str) -> str:
    blocks = (f"{level} {_text(figure.title)}", _text(figure.says), table)
    return "".join(map(_block, blocks))


def _table(table: Table) -> str:
    told = shown(table)
    if not told.rows:
        return "Nothing."
    aligned = ("---:" if numeric else "---" for numeric in told.numeric)
    lines = [_row(map(_cell, told.headings)), _row(aligned)]
    lines += [_row(map(_cell, row)) for row in told.rows]
    return "\n".join(lines)


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return inline(_short(text), in_table=True)


def _text(text: str) -> str:
    return inline(_short(text))


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 3]}..."


def _block(*lines: str) -> str:
    """Return the lines and an empty one; return "" if all lines are empty."""
    return "\n".join((*lines, "", "")) if any(lines) else ""


def _left_out(names: Sequence[str]) -> str:
    told = ", ".join(dict.fromkeys(map(_brief, names[:_NAMED])))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return _block(f"Left out, since a summary has to be small: {told}{more}.")


def _brief(name: str) -> str:
    line = one_line(name)
    return inline(line if len(line) <= 60 else f"{line[:57]}...")


def _bytes(text: str) -> int:
    return len(text.encode())

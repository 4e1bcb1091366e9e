"""The commands that show results: report, compare and explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdperf.cli import REFUSED, Command, complain
from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.json_records import Unreadable, decode
from hvdperf.paths import RESULTS, shown
from hvdperf.records.archive import Archive, read_session
from hvdperf.report import markup, paper, words
from hvdperf.report.compare import comparison
from hvdperf.report.content import Report
from hvdperf.report.html import page
from hvdperf.report.methods import methods
from hvdperf.report.published_table import TIMES, Published, explain, lines
from hvdperf.report.session import newest_session, read_sessions, results_of, session_report
from hvdperf.report.text import printable, terminal

# A published table that the suite comes with.
EXAMPLE = "tests/published/lab11.json"
FORMATS = ("html", "csv", "terminal")
ALL_FORMATS = (*FORMATS, *paper.FORMATS)


@dataclass(frozen=True)
class ReportRequest:
    """A report to write.

    which session
        --results DIR: Use the newest session in this results directory. Default: results.

    output
        --format {ALL_FORMATS}: Write this format. Default: html; with --figures: svg.
        --out PATH: Write to this file, or with --format csv into this directory. Default: a file
            under results/report, or stdout for text.

    figures for a paper
        --figures DIR: Write figures of the main results (--format svg or pdf) to this
            directory, with their captions, a table, and a paragraph for the Methods section.
            Default: write the report.
        --width WIDTH: Make the figures this wide, in mm, cm, in or pt. Default:
            {paper.USUAL_WIDTH}.
    """

    results: Path | None = None
    format_: str | None = None
    out: Path | None = None
    figures: str | None = None
    width: str | None = None

    def points(self) -> float:
        """Return the width of figures in points. Raises UserError for options that contradict each
        other."""
        form, of_figures = self.format_, self.format_ in paper.FORMATS
        if self.figures is None:
            if of_figures or self.width is not None:
                given = f"--format {form}" if of_figures else "--width"
                raise UserError(f"{given} is for figures: give their directory, --figures DIR")
        elif not self.figures:
            raise UserError("--figures: is empty; give a directory")
        elif form is not None and not of_figures:
            raise UserError(f"--figures writes svg or pdf, not {form}: give --format svg or pdf")
        elif self.out is not None:
            raise UserError("--figures and --out are two outputs: give one of them")
        return paper.points_of(self.width or paper.USUAL_WIDTH)


def report_sessions(sessions: Sequence[Path], request: ReportRequest) -> int:
    """Write the report of sessions, or of the newest one; return the exit status."""
    points = request.points()
    directory, *others = sessions or [newest_session(request.results or RESULTS)]
    archive = read_sessions(directory, others)
    if request.figures is not None:
        for told in archive.left_out:
            complain(told)
        form = request.format_ or paper.FORMATS[0]
        print(write_paper(archive, form, points, Path(request.figures)))
        return 0
    name = directory.resolve().name + (f"-and-{len(others)}-more" if others else "")
    place = results_of(directory) / "report" / name
    status = _written(session_report(archive), request.format_, request.out, place)
    return status if archive.cases else REFUSED


def compare_sessions(
    first: Path, second: Path, *, format_: str | None = None, out: Path | None = None
) -> int:
    """Show what changed between two sessions, case by case.

    which sessions
        A: The earlier session, a directory under results/runs.
        B: The later session.

    output
        --format {FORMATS}: Write this format. Default: html.
        --out PATH: Write to this file, or with --format csv into this directory. Default: a file
            under results/report, or stdout for text.
    """
    archives = [read_session(each) for each in (first, second)]
    name = "-and-".join(each.directory.resolve().name for each in archives)
    place = results_of(second) / "report" / name
    return _written(comparison(*archives), format_, out, place)


def _written(report: Report, form: str | None, out: Path | None, place: Path) -> int:
    if out == Path("-"):
        raise UserError("--out -: give a file; leave --out out for --format terminal on stdout")
    for told in report.left_out:
        complain(told)
    print(write(report, form or FORMATS[0], out, place))
    return 0


# Which of these lists a table has.
_TIMES = " or ".join(TIMES)


def explain_table(path: Path) -> int:
    """Find out why throughput and wall time disagree in a published table. FILE is a JSON object
    with the lists gpus, examples_per_second_per_gpu and {_TIMES}, and with speedup_time_printed and
    speedup_speed_printed if the table prints them.

    FILE: Read the table from this file, such as {EXAMPLE}.
    """
    instead = f"; give a file such as {EXAMPLE}"
    with refusing(f"{path}: cannot be read: ", OSError):
        document = path.read_bytes()
    with refusing(f"{path}: is not such a table: ", Unreadable, instead):
        found = explain(decode(document, Published))
    print("\n".join(lines(found)))
    return 0


COMMANDS: dict[str, Command] = {"compare": compare_sessions, "explain": explain_table}

# Files -----------------------------------------------------------------------------------------


def write(report: Report, form: str, out: Path | None, place: Path) -> str:
    """Write the report to `out` and return the text to print: the path, or else the report itself.

    Without `out`, html and csv are written beside `place` (a path without suffix), and the text for
    a terminal is only returned. Raises UserError if a file cannot be written.
    """
    if form == "csv":
        directory = out or place.with_name(f"{place.name}-csv")
        for name, text in markup.tables(report).items():
            write_file(directory / f"{name}.csv", text)
        return shown(directory)
    if form == "html":
        return shown(write_file(out or place.with_name(f"{place.name}.html"), page(report)))
    text = terminal(report)
    return shown(write_file(out, text)) if out is not None else text


def write_paper(archive: Archive, form: str, points: float, directory: Path) -> str:
    """Write the figures of a paper to NAME.svg or NAME.pdf in the directory, their captions, the
    tables of the main results, and a paragraph on the methods. Return the text to print.

    form: svg or pdf. points: width of the figures. Raises UserError if a file cannot be written.
    """
    drawn = printable(tuple(paper.paper_figures(archive)))
    sentences = printable(methods(archive))
    for figure in drawn:
        content = paper.drawing(figure, form, points)
        write_file(directory / f"{figure.name}.{form}", content, "--figures")
    texts = {
        "captions.txt": "\n".join(f"{figure.name}: {figure.says}\n" for figure in drawn),
        "captions.tex": markup.latex_captions(drawn),
        "results.tex": markup.latex(paper.paper_tables(archive)),
        "methods.txt": f"{' '.join(sentences)}\n",
        "methods.tex": f"{' '.join(map(markup.tex, sentences))}\n",
    }
    for name, text in texts.items():
        write_file(directory / name, text, "--figures")
    return f"{shown(directory)}: {words.plural(len(drawn), 'figure')}, {words.joined(texts)}"


def write_file(path: Path, content: str | bytes, option: str = "--out") -> Path:
    """Write a file of a report, and return it. Raises UserError. option: gives another path."""
    instead = f"; give another path by {option}"
    with refusing(f"{shown(path)} cannot be written: ", OSError, instead):
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, content)

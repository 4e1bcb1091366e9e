"""The commands that show results: report, compare and explain."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from hvdperf.cli import REFUSED, Commands, add_command, complain
from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.json_records import Unreadable, decode
from hvdperf.paths import RESULTS, shown
from hvdperf.records.archive import Archive, read_session
from hvdperf.report.compare import comparison
from hvdperf.report.content import Report
from hvdperf.report.formats import figures
from hvdperf.report.formats.html import page
from hvdperf.report.formats.markdown import captions, line, markdown
from hvdperf.report.formats.tables import figures_tex, latex, latex_of, tables, tex
from hvdperf.report.formats.terminal import terminal
from hvdperf.report.formats.text import printable
from hvdperf.report.methods import methods
from hvdperf.report.paper import paper_figures, paper_tables
from hvdperf.report.published_table import TIMES, Published, explain, lines
from hvdperf.report.session import newest_session, read_sources, results_of, session_report
from hvdperf.report.words import joined, plural

# A published table that the suite comes with.
EXAMPLE = "tests/published/lab11.json"


# Returns what makes the texts of a directory, by their format; None for one of another kind.
Texts = Callable[[Path], Mapping[str, Callable[[], str]] | None]


def add_to(commands: Commands, of_script: Texts) -> None:
    """Add the commands report, compare and explain. of_script: makes the report of a run
    of a script."""
    add = add_command(
        commands,
        "report",
        "Show the results of a session as a page, tables, or figures for a paper. It also combines "
        "several sessions, and shows a run of a script (hvdperf run) as a page or text.",
    )
    which = add.add_argument_group("which session").add_mutually_exclusive_group()
    which.add_argument(
        "session",
        type=Path,
        nargs="*",
        default=(),
        metavar="SESSION",
        help="Show this session, a directory under results/runs, or this run of a script, a "
        "directory under results/scripts. Several sessions, such as those of several days, are "
        "averaged; the intervals include the variance between sessions. Default: the newest "
        "session.",
    )
    which.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="Use the newest session in this results directory. Default: results.",
    )
    _add_output(add, figures.FORMATS)
    paper = add.add_argument_group("figures for a paper")
    paper.add_argument(
        "--figures",
        metavar="DIR",
        help="Write at most six figures of the main results (--format svg or pdf) to this "
        "directory, with their captions, a table, and a paragraph for the Methods section. "
        "Default: write the report.",
    )
    paper.add_argument(
        "--with",
        dest="others",
        type=Path,
        action="append",
        default=[],
        metavar="SESSION",
        help="Plot this session, which has a different number of ranks per node, alongside the "
        "other one. May be repeated.",
    )
    paper.add_argument(
        "--width",
        metavar="WIDTH",
        help=f"Make the figures this wide, in mm, cm, in or pt. Default: {figures.USUAL_WIDTH}.",
    )
    add.set_defaults(command=partial(report_session, of_script))

    add = add_command(commands, "compare", "Show what changed between two sessions, case by case.")
    both = add.add_argument_group("which sessions")
    both.add_argument(
        "first", type=Path, metavar="A", help="The earlier session, a directory under results/runs."
    )
    both.add_argument(
        "second",
        type=Path,
        metavar="B",
        help="The later session.",
    )
    _add_output(add)
    add.set_defaults(command=compare_sessions)

    add = add_command(
        commands,
        "explain",
        "Find out why throughput and wall time disagree in a published table. FILE is a "
        f"JSON object with the lists gpus, examples_per_second_per_gpu and {' or '.join(TIMES)}, "
        "and with speedup_time_printed and speedup_speed_printed if the table prints them.",
    )
    add.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help=f"Read the table from this file, such as {EXAMPLE}.",
    )
    add.set_defaults(command=explain_table)


def _add_output(add: argparse.ArgumentParser, more: Sequence[str] = ()) -> None:
    """Add --format and --out. more: formats of figures."""
    output = add.add_argument_group("output")
    default = "html" + ("; with --figures: svg" if more else "")
    output.add_argument(
        "--format", choices=(*FORMATS, *more), help=f"Write this format. Default: {default}."
    )
    output.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="Write to this file, or with --format csv into this directory. Default: a "
        "file under results/report, or stdout for text.",
    )


def report_session(of_script: Texts, arguments: argparse.Namespace) -> int:
    points = _points(arguments)
    directory, *others = arguments.session or [newest_session(arguments.results)]
    results = results_of(directory)
    texts = None if others else of_script(directory)
    if texts is not None:
        return _written_texts(texts, arguments, results, directory.resolve().name)
    sources = read_sources(directory, others)
    if sources.archive.session is None and not sources.archive.cases:
        why = next(iter(sources.archive.left_out), "it holds no document of a session")
        raise UserError(f"{shown(directory)}: nothing to report: {why}; give results/runs/...")
    if arguments.figures is not None:
        for told in sources.left_out:
            complain(told)
        form = arguments.format or figures.FORMATS[0]
        archives = [sources.archive, *map(read_session, arguments.others)]
        print(write_paper(archives, form, points, Path(arguments.figures)))
        return 0
    name = directory.resolve().name + (f"-and-{len(others)}-more" if others else "")
    status = _written(session_report(sources), arguments, results, name)
    return status if sources.archive.cases else REFUSED


def _points(arguments: argparse.Namespace) -> float:
    """Return the width of figures in points. Raises UserError for options that contradict each
    other."""
    form, of_figures = arguments.format, arguments.format in figures.FORMATS
    if arguments.figures is None:
        if of_figures or arguments.width is not None or arguments.others:
            given = (
                f"--format {form}" if of_figures else "--with" if arguments.others else "--width"
            )
            raise UserError(f"{given} is for figures: give their directory, --figures DIR")
    elif not arguments.figures:
        raise UserError("--figures: is empty; give a directory")
    elif form is not None and not of_figures:
        raise UserError(f"--figures writes svg or pdf, not {form}: give --format svg or pdf")
    elif arguments.out is not None:
        raise UserError("--figures and --out are two outputs: give one of them")
    return figures.points_of(arguments.width or figures.USUAL_WIDTH)


def compare_sessions(arguments: argparse.Namespace) -> int:
    first, second = (read_session(each) for each in (arguments.first, arguments.second))
    names = "-and-".join(each.directory.resolve().name for each in (first, second))
    return _written(comparison(first, second), arguments, results_of(arguments.second), names)


def _written_texts(
    texts: Mapping[str, Callable[[], str]],
    arguments: argparse.Namespace,
    results: Path,
    name: str,
) -> int:
    form = arguments.format or FORMATS[0]
    if form not in texts or arguments.figures is not None:
        known = " or ".join(texts)
        raise UserError(f"the report of a run of a script is a page or text: --format {known}")
    text, out = texts[form](), arguments.out
    if out is None and form != FORMATS[0]:
        print(text, end="")
    else:
        print(shown(_write(out or results / "report" / f"{name}.html", text)))
    return 0


def _written(report: Report, arguments: argparse.Namespace, results: Path, name: str) -> int:
    if arguments.out == Path("-"):
        raise UserError("--out -: give a file; leave --out out for --format text on stdout")
    for told in report.left_out:
        complain(told)
    print(write(report, arguments.format or FORMATS[0], arguments.out, results / "report" / name))
    return 0


def explain_table(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    try:
        found = explain(decode(path.read_bytes(), Published))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except Unreadable as error:
        raise UserError(
            f"{path}: is not such a table: {error}; give a file such as {EXAMPLE}"
        ) from None
    print("\n".join(lines(found)))
    return 0


# Files -----------------------------------------------------------------------------------------

FORMATS = ("html", "markdown", "csv", "latex", "terminal")


def write(report: Report, form: str, out: Path | None, place: Path) -> str:
    """Write the report to `out` and return the text to print: the path, or else the report itself.

    Without `out`, html and csv are written beside `place` (a path without suffix), and the others
    are only returned. Raises UserError if a file cannot be written.
    """
    if form == "csv":
        directory = out or place.with_name(f"{place.name}-csv")
        for name, text in tables(report).items():
            _write(directory / f"{name}.csv", text)
        return shown(directory)
    if form == "html":
        return shown(_write(out or place.with_name(f"{place.name}.html"), page(report)))
    text = _TEXTS[form](report)
    return shown(_write(out, text)) if out is not None else text


_TEXTS: Mapping[str, Callable[[Report], str]] = {
    "markdown": markdown,
    "latex": latex,
    "terminal": terminal,
}


def write_paper(archives: Sequence[Archive], form: str, points: float, directory: Path) -> str:
    """Write the figures of a paper to NAME.svg or NAME.pdf in the directory, their captions, the
    tables of the main results, and a paragraph on the methods of each session. Return the text to
    print.

    form: svg or pdf. points: width of the figures. Raises UserError if a file cannot be written.
    """
    drawn = printable(tuple(paper_figures(*archives)))
    results = paper_tables(*archives)
    sentences = [printable(methods(archive)) for archive in archives]
    in_markdown, in_latex = (
        "\n\n".join(" ".join(map(form_of, each)) for each in sentences) for form_of in (line, tex)
    )
    for figure in drawn:
        content = figures.drawing(figure, form, points)
        _write(directory / f"{figure.name}.{form}", content, "--figures")
    texts = {
        "captions.md": captions(drawn),
        "captions.tex": figures_tex(drawn),
        "results.tex": latex_of(results),
        "methods.md": f"# Methods\n\n{in_markdown}\n",
        "methods.tex": f"{in_latex}\n",
    }
    for name, text in texts.items():
        _write(directory / name, text, "--figures")
    return f"{shown(directory)}: {plural(len(drawn), 'figure')}, {joined(texts)}"


def _write(path: Path, content: str | bytes, option: str = "--out") -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, content)
    except OSError as error:
        raise UserError(
            f"{shown(path)} cannot be written: {error.strerror}; give another path by {option}"
        ) from None

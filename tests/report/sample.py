"""Reports made by hand: of several sections, and hostile ones. All is made up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from hvdperf.report import plots
from hvdperf.report.content import CaseNote, Column, Figure, Report, Row, Section, Table
from hvdperf.verdict import Verdict, worst

MODELS = ("inception_v4_s", "lstm_s", "resnet_50_s", "vgg_16_s")
QUESTIONS = ("weak_scaling", "strong_scaling", "parity")
SIZES = (1, 2, 4, 8)
WORDS = tuple(verdict.value for verdict in Verdict)

TRACEBACK = ("Traceback:", '  File "train.py", line 3, in step', "ValueError")

BOARD = (
    Column("verdict", "Verdict"),
    Column("case", "Case"),
    Column("question", "Question"),
    Column("model", "Model"),
    Column("world_size", "np"),
    Column("figure", "Figure", digits=3),
    Column("lower", "Lower", digits=3),
    Column("upper", "Upper", digits=3),
    Column("rule", "Must be"),
    Column("rounds", "Rounds"),
)
SPEEDS = (
    Column("model", "Model"),
    Column("world_size", "Replicas"),
    Column("speed", "Throughput", "img/s", 1),
    Column("lower", "Lower", "img/s", 1),
    Column("upper", "Upper", "img/s", 1),
    Column("ideal", "Perfect", "img/s", 1),
)
# What each of these would do if it were taken for anything but text.
HOSTILE = (
    "<script>window.ran = 1</script>",
    "</script><script>window.ran = 1</script>",
    "</td></table><img src=x onerror='window.ran = 1'>",
    "\"' onmouseover='window.ran = 1' ` ${window.ran = 1} {{ 7 * 7 }} {% raw %} <!-- ]]>",
    "\u202eright to left\u202c \u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627 \u2066x",
    "bell\x07 escape\x1b[31m null\x00 delete\x7f next\x85 line\u2028end \ufffe",
    "lone \ud800 half",
    'comma, "quoted"\nsecond line',
    "=cmd|' /C calc'!A0",
    "&lt;b&gt; &amp; \\u003c </style><style>*{display:none}</style>",
)


def case(verdict: Verdict, question: str, model: str, world_size: int, drawn: random.Random) -> Row:
    """Of the board; an INVALID one has no figure."""
    figure = drawn.uniform(0.5, 1.1)
    known = verdict is not Verdict.INVALID
    return {
        "verdict": verdict.value,
        "case": f"{question}/{model}/{world_size}",
        "question": question,
        "model": model,
        "world_size": world_size,
        "figure": figure if known else None,
        "lower": figure * 0.97 if known else None,
        "upper": figure * 1.03 if known else None,
        "rule": ">= 0.9",
        "rounds": drawn.choice((8, 12)),
    }


def board(rows: Sequence[Row]) -> Figure:
    return Figure(
        "board",
        "All cases",
        f"{len(rows)} cases with their figures, 95 % intervals, and what they are held against.",
        Table(BOARD, tuple(rows)),
    )


def scaling(model: str, question: str, drawn: random.Random, name: str = "") -> Figure:
    """Throughput by the number of replicas, beside what would be perfect."""
    alone = drawn.uniform(50, 500)
    speeds = [(size, alone * size ** drawn.uniform(0.8, 1.0)) for size in SIZES]
    rows = ((model, n, speed, 0.95 * speed, 1.05 * speed, alone * n) for n, speed in speeds)
    table = Table.filled(SPEEDS, rows)
    ideal = plots.layer({"type": "line", "style": "ideal"}, y=plots.field("ideal"))
    x, y = (plots.axis(table, key) for key in ("world_size", "speed"))
    plot = plots.curve(table, x, y, "model", ideal)
    return Figure(
        name or f"scaling-{question}-{model}",
        f"{model}, {question.replace('_', ' ')}",
        f"{speeds[-1][1]:.0f} img/s at {SIZES[-1]} replicas, {alone:.0f} img/s alone.",
        table,
        plot,
    )


def shares(drawn: random.Random) -> Figure:
    """Where the time of a step goes: bars beside each other."""
    parts = [Column(name, name, digits=3) for name in ("compute", "exchange", "waiting", "input")]
    rows = [(model, *(drawn.random() for _ in parts), None) for model in MODELS]
    columns = (Column("model", "Model"), *parts, Column("note", "Note"))
    table = Table.filled(columns, rows)
    said = f"{len(parts)} parts of a step of each of {len(MODELS)} models."
    plot = plots.stacked(table, "model", *(part.key for part in parts))
    return Figure("shares", "Where the time goes", said, table, plot)


def without_plot() -> Figure:
    """A table alone, with every kind of value."""
    columns = (
        Column("name", "Name"),
        Column("whole", "Whole"),
        Column("real", "Real", "s", 3),
        Column("tiny", "Tiny", "s", 3),
    )
    rows = (
        ("all", 12, 0.1 + 0.2, 1.25e-7),
        ("", 2**53 - 1, 1e22, 0.0),
        (None, None, None, None),
        ("negative", -3, -0.8231249999, -1e-9),
    )
    return Figure("environment", "A table alone", "Without a plot.", Table.filled(columns, rows))


def note(row: Row, output: Sequence[str] = ()) -> CaseNote:
    paragraphs = ("Rank 1 left in phase step.", "Its weights differ from those of rank 0 by 0.03.")
    return CaseNote(str(row["case"]), Verdict(row["verdict"]), paragraphs, tuple(output))


def a_report() -> Report:
    """A session of every question, model and size, with all verdicts. Most cases pass."""
    drawn = random.Random(1)
    wanted = [(q, m, s) for q in QUESTIONS for m in MODELS for s in SIZES[1:3]]
    words = [*Verdict, *[Verdict.PASS] * (len(wanted) - len(Verdict))]
    drawn.shuffle(words)
    rows = [case(word, *which, drawn) for word, which in zip(words, wanted, strict=True)]
    counts = Counter(Verdict(row["verdict"]) for row in rows)
    rounds = scaling("vgg_16_s", "parity", drawn, "rounds")
    of_models = tuple(scaling(model, "weak_scaling", drawn) for model in MODELS)
    return Report(
        title="hvdperf: 24 cases on a made-up machine",
        verdict=worst(list(counts)),
        counts=counts,
        facts={
            "machine": "2 cores, 7.6 GiB, made up",
            "duration": "17 min",
            "profile": "default",
            "stack": "Horovod 0.28.1, TensorFlow 2.18.1, Open MPI 4.1.8",
            "session": "20260131T120000Z-1",
        },
        warnings=("The clock was set by 0.2 s meanwhile.",),
        board=board(rows),
        notes=tuple(
            note(row, TRACEBACK if row["verdict"] == Verdict.INVALID.value else ())
            for row in rows
            if row["verdict"] != Verdict.PASS.value
        ),
        sections=(
            Section("scaling", "Scaling", "Throughput by the number of replicas.", of_models),
            Section("time", "Where time goes", "Of a step.", (shares(drawn),)),
            Section("parity", "Parity", "Rounds of two strategies.", (rounds,)),
            Section("tables", "Tables", "Without a plot.", (without_plot(),)),
            Section("bound", "The bound", "", (), "pytest perf/ -k bound would measure it."),
        ),
        left_out=("runs/1/raw.json: not of this schema",),
        next_steps=("# details", "hvdperf report"),
    )


def hostile() -> Report:
    """Every text of it wants to be more than a text."""
    drawn = random.Random(2)
    rows = [
        {**case(Verdict.FAIL, QUESTIONS[0], text, 2, drawn), "case": text, "rule": text}
        for text in HOSTILE
    ]
    plain = scaling("vgg_16_s", "parity", drawn, "plain")
    columns = (Column("text", HOSTILE[0], HOSTILE[1]), Column("number", HOSTILE[3], digits=1))
    texts = Table.filled(columns, ((text, float(place)) for place, text in enumerate(HOSTILE)))
    titled = {
        "width": "container",
        "height": 200,
        "title": HOSTILE[1],
        "description": HOSTILE[0],
        "usermeta": {"embedOptions": {"ast": False, "loader": {"baseURL": "//192.0.2.1/"}}},
        "mark": "bar",
        "encoding": {
            "y": plots.field("text", "nominal", HOSTILE[5]),
            "x": plots.field("number", "quantitative", HOSTILE[3]),
            "tooltip": plots.field("text", "nominal", HOSTILE[0]),
        },
    }
    broken = {"height": 200, "mark": "no such mark", "encoding": {"x": {"field": HOSTILE[0]}}}
    elsewhere = {
        "height": 200,
        "mark": {"type": "image", "width": 9, "height": 9},
        "encoding": {"url": {"value": "//192.0.2.1/a.png"}, "x": plots.field("number", "ordinal")},
    }
    every = " ".join(HOSTILE)
    return Report(
        title=HOSTILE[0] + HOSTILE[4],
        verdict=Verdict.FAIL,
        counts={Verdict.FAIL: len(rows)},
        facts={"host": every, HOSTILE[1]: HOSTILE[2]},
        warnings=HOSTILE,
        board=board(rows),
        notes=tuple(CaseNote(text, Verdict.FAIL, HOSTILE, HOSTILE) for text in HOSTILE),
        sections=(
            Section(
                "texts",
                HOSTILE[1],
                every,
                (
                    Figure("titled", HOSTILE[1], every, texts, titled),
                    Figure("broken", HOSTILE[2], every, plain.table, broken),
                    formulas(),
                    Figure("elsewhere", "An image", "", texts, elsewhere),
                    plain,
                ),
            ),
            Section("missing", HOSTILE[0], every, (), every),
        ),
        left_out=HOSTILE,
    )


def formulas() -> Figure:
    """Texts that spreadsheets would calculate, in cells and titles, beside a number below zero."""
    columns = (Column("text", "=1+1", "s"), Column("wide", "\uff20x"), Column("number", "-1", "s"))
    rows = (
        (f"{space}{sign}1+1", f"1{sign}1", -5.25)
        for sign in "=+-@\uff1d\uff0b\uff0d\uff20"
        for space in ("", " \n\t")
    )
    return Figure("formulas", "Formulas", "None is calculated.", Table.filled(columns, rows))

"""The paragraph for a paper: each number is that of the documents."""

from __future__ import annotations

import re
from dataclasses import replace
from string import Formatter
from typing import Any

import pytest

from hvdperf.plan.questions import against, weak_scaling
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.documents import Asked
from hvdperf.records.outcome import Outcome
from hvdperf.report.methods import SENTENCES, facts, methods
from hvdperf.verdict import Noise
from tests.report.cases import known, recorded_session
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, outcome

WEAK = outcome(weak_scaling(WORKLOAD, 2), [0.9] * 6)


def archive_with(results, case: Outcome = WEAK, **fields: Any) -> Archive:
    """A session with one case, and with these fields in its document."""
    return read_session(session_of(results, case, **fields))


def with_known(archive: Archive, **known: Any) -> Archive:
    """The session with these values in its fingerprint."""
    assert archive.session is not None
    fingerprint: Any = archive.session.fingerprint | known
    return replace(archive, session=replace(archive.session, fingerprint=fingerprint))


def said(archive: Archive) -> str:
    return " ".join(methods(archive))


def test_facts_are_those_of_the_session(tmp_path):
    archive = archive_with(
        tmp_path,
        suite="0.2.0 (a38e7e4b0f8c+)",
        command="pytest perf/ -k weak",
        elapsed_seconds=90.0,
        timed_seconds=30.0,
        launched="mpirun --bind-to none",
        asked=Asked(looks=(8, 12), early=True),
    )
    text = said(archive)
    for fact in (
        "hvdperf 0.2.0 (commit a38e7e4b0f8c with uncommitted changes), profile smoke",
        "on Saturday, 31 January 2026, 23:59 UTC",
        "The command was: pytest perf/ -k weak.",
        "for 1.5 minutes, of which 0.5 minutes were timed",
        "mpirun --bind-to none",
        "A case ended with its verdict, after 12 rounds at most.",
    ):
        assert fact in text


def test_every_kind_of_case_is_told_and_no_sentence_lacks_a_fact(
    tmp_path,
):
    """A misspelt field would leave its sentence out forever."""
    recorded = read_session(recorded_session(tmp_path))
    assert recorded.left_out == ()
    text = said(recorded)
    for told in ("tf.distribute.MirroredStrategy on", "MPI without a framework on 2 ranks"):
        assert told in text
    assert not re.search("None|nan", text)
    archives = (recorded, archive_with(tmp_path / "weak"))
    groups = [{*facts(archive)} for archive in archives]
    groups += [{"networks", "data", "how"}, {"small"}, {"script"}, {"sessions"}]
    for sentence in SENTENCES.read_text().splitlines():
        fields = {name.partition(".")[0] for _, name, *_ in Formatter().parse(sentence) if name}
        assert any(fields <= group for group in groups), sentence


def test_machine_and_software_are_those_of_the_fingerprint(tmp_path):
    known = {"cores": 64, "gpus": 2, "gpu_model": ["H100"], "gpu_driver": ["550.1"]}
    horovod = {"fusion_threshold_bytes": 64 * 2**20, "settings": ["HOROVOD_AUTOTUNE=1"]}
    known |= {f"horovod_{name}": value for name, value in horovod.items()}
    text = said(with_known(archive_with(tmp_path), **known, nccl="2.21.5"))
    assert "64 cores" in text
    assert "2 x H100; " in text
    assert "TensorFlow 2.18.1, Keras 3.15.1, NumPy 2.0.2, Horovod 0.28.1" in text
    assert "NCCL 2.21.5" in text
    assert "GPU driver 550.1" in text
    assert "CUDA" not in text
    assert "a fusion threshold of 64 MiB, a cycle time of" in text
    assert "and HOROVOD_AUTOTUNE=1." in text


def test_rounds_launches_and_blocks_are_counted(tmp_path):
    archive = archive_with(tmp_path)
    (case,) = archive.cases
    launches = [launch for measured in case.rounds for launch in measured.launches]
    blocks = sum(len(launch.blocks) for launch in launches)
    processes = sum(launch.arm.processes for launch in launches)
    text = said(archive)
    assert f"A case has {len(case.rounds)} rounds" in text
    assert f"{len(launches)} launches with {processes} processes" in text
    assert f"{blocks} blocks of" in text
    assert "The suite trained ResNet-50 (small) with input size 32 on" in text
    assert "The configurations were Horovod on 1 and 2 ranks." in text
    assert "The intervals of 1 case with 6 rounds invert the Wilcoxon signed-rank test" in text
    assert "a confidence of 95 %" in text
    for missing in ("Student's t", "unknown", "0 GiB", "CUDA", "None", "factor", "assumed"):
        assert missing not in text


def test_two_stacks_are_named_with_their_differences(tmp_path):
    asked = known(against(weak_scaling(WORKLOAD, 2)))
    archive = archive_with(
        tmp_path,
        outcome(asked, [1.0] * 8),
        against="old/python",
        changed=("keras: 2.15.0 -> 3.15.1", "numpy: 1.26.4 -> 2.0.2"),
    )
    text = said(archive)
    assert (
        "Every case compares this stack with that of old/python. Differences from that stack to "
        "this one: keras: 2.15.0 -> 3.15.1; numpy: 1.26.4 -> 2.0.2." in text
    )


def trained(archive: Archive) -> str:
    return next(each for each in methods(archive) if each.startswith("The suite trained"))


def test_made_up_samples_are_not_told_as_the_data_set_whose_format_they_have(tmp_path):
    plain, made_up = (
        archive_with(tmp_path / name, made_up_data=value)
        for name, value in (("plain", ()), ("made", ("cifar10",)))
    )
    assert [" on cifar10 with" in trained(each) for each in (plain, made_up)] == [True, False]


def test_the_optimizer_and_the_data_of_an_own_network_are_not_guessed(tmp_path):
    suite = archive_with(tmp_path / "suite")
    assert "adam" in trained(suite)
    # Whatever the network of a file is called.
    assert "adam" not in trained(with_known(suite, own_networks=[f"{WORKLOAD.model}: 0a1b"]))
    paper = replace(WORKLOAD, model="papernet", dataset="papernet")
    own = trained(archive_with(tmp_path / "own", outcome(weak_scaling(paper, 2), [0.9] * 6)))
    assert "adam" not in own
    assert " on papernet" not in own


def test_a_session_of_a_precision_ends_by_its_own_rule(tmp_path):
    case = outcome(weak_scaling(WORKLOAD, 2), [0.88, 0.89, 0.9, 0.91, 0.92, 0.93])
    wide, narrow = (
        said(archive_with(tmp_path / name, case, precision=share, asked=Asked(looks=(8, 12))))
        for name, share in (("wide", 0.5), ("narrow", 1e-9))
    )
    assert "1 of 1 interval" in wide
    assert "0 of 1 interval" in narrow
    assert "50 %" in wide
    for text in (wide, narrow):
        assert "with its verdict" not in text


def test_what_ranks_exchanged_gradients_by_is_told_where_it_is_known(tmp_path):
    archive = archive_with(tmp_path)
    assert "reduced gradients by MPI" in said(archive)
    on_gpus = with_known(archive, gpus=2, gpu_model=["H100"])
    assert "reduced gradients by" not in said(on_gpus)


def judged(**judgement: Any) -> Outcome:
    return replace(WEAK, judgement=replace(WEAK.judgement, **judgement))


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (judged(widened=1.25), "factor of 1.25"),
        (judged(early=Noise(0.05, 0.0, "assumed")), "5.0 % (assumed)"),
    ],
)
def test_what_a_case_was_measured_with_is_told(tmp_path, case, told):
    assert told in said(archive_with(tmp_path, case))

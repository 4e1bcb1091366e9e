"""A program that is run to its end, and each way in which it may not get there."""

from __future__ import annotations

import pytest

from hvdperf.programs import NotStarted, TooLong, last_line, run


def test_what_a_program_reads_writes_and_ends_with_is_told() -> None:
    done = run(["/bin/sh", "-c", "cat; echo word; echo a >&2; echo b >&2; exit 3"])
    assert done == (3, "word\n", "a\nb\n")
    assert (done.said[0], done.why) == ("a", "b")
    silent = run(["/bin/sh", "-c", "exit 3"])
    assert (silent.said, silent.why) == (["it printed nothing"], "it ended with status 3")


def test_the_last_line_of_a_framed_message_is_within_the_frame() -> None:
    assert last_line("-----\nnot found\n-----\n\n") == "not found"
    assert last_line("-----\n") == ""
    exited = f"{'-' * 74}\nPrimary job  terminated normally, but 1 process returned\na non-zero"
    assert last_line(f"[1,0]<stderr>:KeyError: 'a'\n{exited}\n  Exit code:  1\n") == (
        "[1,0]<stderr>:KeyError: 'a'"
    )


def test_a_program_that_does_not_start_or_end_is_one_line(tmp_path) -> None:
    with pytest.raises(NotStarted, match=r"none does not start: No such file or directory$"):
        run([tmp_path / "none"])
    with pytest.raises(TooLong, match=r"^sleep did not end within 0\.1 s$"):
        run(["sleep", "60"], within_s=0.1)

"""What a machine does without TensorFlow and Horovod."""

from __future__ import annotations

from hvdperf.machine.probe import probe, probe_gpus


def test_every_figure_is_positive():
    found = probe()
    assert set(found) == {"matrix product", "copy"}
    assert all(value > 1e6 for value in found.values())


def test_a_machine_without_gpus_has_nothing_to_say_of_them():
    assert probe_gpus() == {}

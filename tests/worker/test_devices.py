"""What a device trains, and whether it computes the same twice."""

from __future__ import annotations

from hvdperf.worker.devices import Devices, Training


def test_the_same_seeds_give_the_same_weights_however_much_was_trained() -> None:
    one = Training("CPU:0", "alexnet_s", 3)
    first = one.digest()
    assert one.step() == 1.0
    assert one.digest() == first
    assert Training("CPU:0", "alexnet_s", 3).digest() == first
    assert Training("CPU:0", "alexnet_s", 4).digest() != first


def test_cores_are_one_device() -> None:
    devices = Devices()
    assert devices.terms == ["compute", "memory"]
    for term in devices.terms:
        (found,) = devices.rates(term, 0.01).items()
        assert found[0] == "CPU"
        assert found[1] > 0
    assert set(devices.digests()) == {"CPU"}

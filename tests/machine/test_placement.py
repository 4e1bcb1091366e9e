import pytest

from hvdperf.errors import UserError
from hvdperf.launch.arm_launcher import Threads, threads
from hvdperf.machine.host import Gpu, Machine
from hvdperf.machine.placement import (
    Offer,
    cores_of,
    is_oversubscribed,
    local_offers,
    nodes,
    place,
    place_group,
    replicas_per_node,
)
from hvdperf.worker.strategies import Strategy


def offers(*hosts):
    """Each host: (name, slots, cores, gpus); ranks are numbered host after host."""
    made: list[Offer] = []
    for name, slots, cores, gpus in hosts:
        for _ in range(slots):
            made.append(Offer(len(made), name, tuple(range(cores)), tuple(gpus)))
    return made


def gpus(*indices):
    return [f"GPU-{index}" for index in indices]


CPU_2 = Machine("small", (0, 1))
GPU_4 = Machine("big", tuple(range(16)), gpus=tuple(Gpu(uuid, "V100") for uuid in gpus(*range(4))))


def dealt(*cores, gpus=()):
    """Offers of four ranks that an mpirun has dealt out to hosts a and b in turn."""
    return [Offer(rank, "ab"[rank % 2], cores, gpus) for rank in range(4)]


class TestHosts:
    @pytest.mark.parametrize(
        ("made", "cores", "shared"),
        [
            (offers(("a", 3, 8, [])), [(0, 1), (2, 3), (4, 5)], ()),
            # Shares follow the order of the cores, here by socket.
            (
                [Offer(rank, "a", (0, 2, 4, 6, 1, 3, 5, 7)) for rank in range(2)],
                [(0, 2, 4, 6), (1, 3, 5, 7)],
                (),
            ),
            (offers(("a", 3, 2, [])), [(0,), (1,), (0,)], (0, 2)),
            # Equal core numbers on two hosts are not shared.
            (offers(("a", 2, 2, []), ("b", 2, 2, [])), [(0,), (1,), (0,), (1,)], ()),
            # Ranks that a scheduler has bound keep their own cores.
            ([Offer(0, "a", (0, 1)), Offer(1, "a", (2, 3))], [(0, 1), (2, 3)], ()),
        ],
    )
    def test_slots_get_equal_shares_of_the_cores(self, made, cores, shared):
        slots = place(made)
        assert [slot.cores for slot in slots] == cores
        assert [slot.rank for slot in slots if slot.oversubscribed] == list(shared)
        assert all(slot.device is None for slot in slots)

    def test_two_nodes_with_four_in_any_order_of_the_offers(self):
        made = offers(("a", 4, 8, gpus(0, 1, 2, 3)), ("b", 4, 8, gpus(4, 5, 6, 7)))
        slots = place(made)
        assert [slot.device for slot in slots] == gpus(0, 1, 2, 3, 4, 5, 6, 7)
        assert [slot.host for slot in slots] == ["a"] * 4 + ["b"] * 4
        assert [slot.cores for slot in slots[4:]] == [(0, 1), (2, 3), (4, 5), (6, 7)]
        assert not any(slot.oversubscribed for slot in slots)
        assert place(made[::-1]) == slots

    @pytest.mark.parametrize(
        ("made", "devices", "shared"),
        [
            (
                offers(("a", 4, 16, gpus(0, 1, 2, 3)), ("b", 2, 16, gpus(8, 9))),
                gpus(0, 1, 2, 3, 8, 9),
                (),
            ),
            (offers(("a", 3, 12, gpus(0, 1))), gpus(0, 1, 0), (0, 2)),
            # Equal names on two hosts are not shared.
            (offers(("a", 1, 4, gpus(0)), ("b", 1, 4, gpus(0))), gpus(0, 0), ()),
            # Ranks that were dealt out to the nodes in turn, and that have a GPU of their own.
            (dealt(0, 1, gpus=("GPU-0", "GPU-1")), gpus(0, 0, 1, 1), ()),
            ([Offer(rank, "a", (0, 1), (f"GPU-{rank}",)) for rank in (0, 1)], gpus(0, 1), ()),
        ],
    )
    def test_slots_take_the_visible_gpus_in_turn(self, made, devices, shared):
        slots = place(made)
        assert [slot.device for slot in slots] == devices
        assert [slot.rank for slot in slots if slot.oversubscribed] == list(shared)
        assert len({len(slot.cores) for slot in slots}) == 1, "all slots are alike"

    @pytest.mark.parametrize(
        ("made", "told"),
        [
            (offers(("a", 2, 4, gpus(0, 1)), ("b", 2, 4, [])), "host b has no GPU while others"),
            (
                [Offer(0, "a", (0,), ("GPU-0",), "H100"), Offer(1, "b", (0,), ("GPU-0",), "V100")],
                "host b has V100, while a has H100",
            ),
            (
                offers(("a", 2, 8, []), ("b", 2, 4, [])),
                "host b has 4 cores for 2 slots, and a has 8 for 2",
            ),
        ],
    )
    def test_a_host_unlike_the_others_is_refused(self, made, told):
        with pytest.raises(UserError, match=told):
            place(made)


class TestGroups:
    @pytest.mark.parametrize("host", [("a", 4, 2, []), ("a", 4, 16, gpus(0, 1))])
    def test_four_slots_on_two_cores_or_gpus_are_oversubscribed_only_together(self, host):
        slots = place(offers(host))
        marks = [[slot.oversubscribed for slot in place_group(slots, n)] for n in (1, 2, 3, 4)]
        assert marks == [[False], [False] * 2, [True, False, True], [True] * 4]
        assert [is_oversubscribed(slots, n) for n in (1, 2, 3, 4)] == list(map(any, marks))
        # Every replica keeps one slot's share.
        assert [slot.cores for slot in place_group(slots, 2)] == [slot.cores for slot in slots[:2]]

    def test_replicas_are_counted_node_by_node(self):
        slots = place(offers(("a", 4, 8, []), ("b", 2, 8, [])))
        assert [replicas_per_node(slots, n) for n in (3, 5, 6)] == [(3,), (4, 1), (4, 2)]
        assert [nodes(slots, n) for n in (1, 4, 5, 6)] == [1, 1, 2, 2]

    def test_a_group_takes_hosts_in_the_order_of_ranks(self):
        """The outer mpirun has dealt the ranks out in turn: 0 and 2 are on a."""
        slots = place(dealt(0, 1))
        assert [replicas_per_node(slots, n) for n in (1, 2, 3, 4)] == [(1,), (1, 1), (2, 1), (2, 2)]
        # The inner mpirun fills a host before the next one, so its ranks are in that order.
        assert [slot.rank for slot in place_group(slots, 4)] == [0, 2, 1, 3]

    @pytest.mark.parametrize("world_size", [0, 3])
    def test_a_size_that_the_session_does_not_have_is_refused(self, world_size):
        with pytest.raises(UserError, match=f"world size {world_size} .* this session has 2"):
            place_group(place(offers(("a", 2, 2, []))), world_size)


class TestLocalOffers:
    @pytest.mark.parametrize("np", [None, 4, 2])
    def test_one_slot_a_gpu_by_default_or_fewer_on_request(self, np):
        slots = place(local_offers(GPU_4, np=np))
        assert [slot.device for slot in slots] == gpus(*range(np or 4))
        assert {len(slot.cores) for slot in slots} == {16 // (np or 4)}

    @pytest.mark.parametrize(
        ("machine", "np", "told"),
        [(CPU_2, 4, "small has 2 slots, one a core"), (GPU_4, 5, "big has 4 slots, one a GPU")],
    )
    def test_more_than_there_are_is_refused_with_the_way_out(self, machine, np, told):
        with pytest.raises(UserError) as caught:
            local_offers(machine, np=np)
        assert told in str(caught.value)
        assert f"--np {np}" in str(caught.value)
        assert "--oversubscribe" in str(caught.value)

    def test_more_than_there_are_on_request(self):
        assert local_offers(CPU_2)[1] == Offer(1, "small", (0, 1), model="unknown")
        slots = place(local_offers(CPU_2, np=4, oversubscribe=True))
        assert len(slots) == 4
        assert is_oversubscribed(slots, 4)
        with pytest.raises(UserError, match="--np 0"):
            local_offers(CPU_2, np=0)


class TestThreads:
    @pytest.mark.parametrize(
        ("strategy", "cores", "pools"),
        [
            (Strategy.HOROVOD, 8, Threads(intra_op=4, inter_op=1)),
            (Strategy.MIRRORED, 8, Threads(intra_op=8, inter_op=2)),
            # With a core a replica no intra-op pool is needed.
            (Strategy.MIRRORED, 2, Threads(intra_op=1, inter_op=2)),
        ],
    )
    def test_both_strategies_compute_on_the_same_cores(self, strategy, cores, pools):
        assert threads(strategy, place(offers(("a", 2, cores, [])))) == pools
        assert cores_of(place_group(place(offers(("a", 4, 8, []))), 2)) == (0, 1, 2, 3)

    @pytest.mark.parametrize("strategy", list(Strategy))
    def test_one_replica_is_the_same_either_way_and_beside_a_gpu_tensorflow_decides(self, strategy):
        group = place_group(place(offers(("a", 2, 8, []))), 1)
        assert threads(strategy, group) == Threads(intra_op=4, inter_op=1)
        assert threads(strategy, place(offers(("a", 2, 8, gpus(0, 1))))) == Threads(0, 0)

    def test_mirrored_does_not_span_hosts(self):
        with pytest.raises(ValueError, match="one host"):
            threads(Strategy.MIRRORED, place(offers(("a", 1, 2, []), ("b", 1, 2, []))))

"""A stand-in for the OSU micro-benchmarks: mpi4py's times, printed as they do.

`python osu_like.py OPERATION` and their arguments, below mpirun.
"""

import argparse
from functools import partial

import numpy as np
from mpi4py import MPI

TITLES = {
    "allreduce": "Allreduce",
    "allgather": "Allgather",
    "bcast": "Broadcast",
    "reduce_scatter": "Reduce_scatter",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("operation", choices=TITLES)
    parser.add_argument("-m", dest="sizes", required=True)
    parser.add_argument("-i", dest="repeats", type=int, required=True)
    parser.add_argument("-x", dest="warm_up", type=int, required=True)
    parser.add_argument("-T", dest="type", choices=["mpi_float"], required=True)
    parser.add_argument("-M", dest="memory", type=int, required=True)
    parser.add_argument("-f", dest="full", action="store_true", required=True)
    given = parser.parse_args()
    comm = MPI.COMM_WORLD
    n = comm.size
    if comm.rank == 0:
        print(f"\n# OSU MPI {TITLES[given.operation]} Latency Test v7.5\n# Datatype: MPI_FLOAT.")
        print("# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations")
    size, largest = map(int, given.sizes.split(":"))
    while size <= largest:
        sent = np.zeros(size // 4, np.float32)
        received = np.zeros(n * sent.size, np.float32)
        parts = [sent.size // n + (rank < sent.size % n) for rank in range(n)]
        run = {
            "allreduce": partial(comm.Allreduce, sent, received[: sent.size]),
            "allgather": partial(comm.Allgather, sent, received),
            "bcast": partial(comm.Bcast, sent),
            "reduce_scatter": partial(
                comm.Reduce_scatter, sent, received[: parts[comm.rank]], recvcounts=parts
            ),
        }[given.operation]
        seconds = []
        for _ in range(given.warm_up + given.repeats):
            comm.Barrier()
            begin = MPI.Wtime()
            run()
            seconds.append(MPI.Wtime() - begin)
        every = comm.gather(1e6 * float(np.mean(seconds[given.warm_up :])))
        if every is not None:
            times = (float(np.mean(every)), min(every), max(every))
            print(f"{size:<10}" + "".join(f"{time:18.2f}" for time in times), f"{given.repeats:11}")
        size *= 2


main()

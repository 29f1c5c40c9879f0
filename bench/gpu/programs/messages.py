# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth between ranks 0 and 1; of sums over all ranks if there are more."""

import json
import time

import numpy
from mpi4py import MPI

SIZES = [8, 1024, 65536, 1 << 20, 4 << 20]
SECONDS = 0.25


def median_of_five(run):
    return sorted(run() for _ in range(5))[2]


def count_for(world, once):
    """How often to repeat it, the same on all ranks."""
    world.Barrier()
    begin = time.perf_counter()
    for _ in range(5):
        once()
    return world.bcast(max(5, int(SECONDS / 5 / ((time.perf_counter() - begin) / 5))))


def seconds_for(world, once):
    once()
    count = count_for(world, once)

    def run():
        world.Barrier()
        begin = time.perf_counter()
        for _ in range(count):
            once()
        return (time.perf_counter() - begin) / count

    return median_of_five(run)


def ping_pong(world, size):
    """Seconds for one way."""
    buffer = bytearray(size)
    message = [buffer, MPI.BYTE]

    def once():
        if world.rank == 0:
            world.Send(message, 1)
            world.Recv(message, 1)
        else:
            world.Recv(message, 0)
            world.Send(message, 0)

    return seconds_for(world, once) / 2


def sums(world, size):
    """Seconds for one sum over all ranks."""
    numbers = numpy.zeros(size // 4, numpy.float32)
    return seconds_for(world, lambda: world.Allreduce(MPI.IN_PLACE, numbers))


def main():
    world = MPI.COMM_WORLD
    measure = ping_pong if world.size == 2 else sums
    seconds = {str(size): measure(world, size) for size in SIZES}
    if world.rank == 0:
        print("RESULT " + json.dumps({"ranks": world.size, "what": measure.__name__, "seconds": seconds}), flush=True)


main()

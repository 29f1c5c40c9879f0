# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on CPUs: each rank trains a small GPT on batches of its own, and gradients are added by MPI.

Each rank has the same work whatever their number, so that ideal scaling keeps the iterations per second.
"""

import json
import sys
import time

import torch
from mpi4py import MPI

from model import GPT, batch_of, load_text

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 2, 192, 4, 64, 2
WARM_UP = 10


def main():
    seconds = float(sys.argv[1])
    torch.set_num_threads(1)
    world = MPI.COMM_WORLD
    torch.manual_seed(1)
    model = GPT(LAYERS, WIDTH, HEADS, LENGTH)
    torch.manual_seed(2 + world.rank)
    text = load_text("cpu")
    count = sum(p.numel() for p in model.parameters())
    # All gradients in one buffer: one message for each step.
    gradients = torch.zeros(count)
    offset = 0
    for parameter in model.parameters():
        parameter.grad = gradients[offset:offset + parameter.numel()].view_as(parameter)
        offset += parameter.numel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    in_mpi = 0.0

    def step():
        nonlocal in_mpi
        gradients.zero_()
        loss = model(*batch_of(text, BATCH, LENGTH))
        loss.backward()
        begin = time.perf_counter()
        world.Allreduce(MPI.IN_PLACE, gradients.numpy())
        in_mpi += time.perf_counter() - begin
        gradients.div_(world.size)
        optimizer.step()
        return loss

    for _ in range(WARM_UP):
        loss = step()
    world.Barrier()
    # All ranks must do the same number of steps.
    begin = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    steps = world.bcast(max(10, int(seconds * WARM_UP / (time.perf_counter() - begin))))
    world.Barrier()
    in_mpi, begin = 0.0, time.perf_counter()
    for _ in range(steps):
        loss = step()
    elapsed = time.perf_counter() - begin
    if world.rank == 0:
        print("RESULT " + json.dumps({
            "ranks": world.size, "parameters": count, "bytes": 4 * count, "steps": steps,
            "stepsPerSecond": steps / elapsed, "shareOfMPI": in_mpi / elapsed, "loss": loss.item(),
        }), flush=True)


main()

# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training of a perceptron with numpy: starts in a second, for runs that alternate.

Each rank learns the next byte of a text from the bytes before it, on batches of its own; a message has 4 MiB.
"""

import json
import os
import sys
import time

import numpy
from mpi4py import MPI

SIZES = [64, 1024, 768, 256]
BATCH, WARM_UP = 64, 20


def batch_of(text, random):
    starts = random.integers(len(text) - SIZES[0] - 1, size=BATCH)
    windows = text[starts[:, None] + numpy.arange(SIZES[0] + 1)]
    return windows[:, :-1].astype(numpy.float32) / 128 - 1, windows[:, -1]


def gradients_of(weights, gradients, inputs, targets):
    """Write the gradients of the cross entropy, and return its mean."""
    values = [inputs]
    for weight in weights[:-1]:
        values.append(numpy.maximum(values[-1] @ weight, 0))
    logits = values[-1] @ weights[-1]
    logits -= logits.max(axis=1, keepdims=True)
    chances = numpy.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    loss = -numpy.log(chances[numpy.arange(BATCH), targets]).mean()
    chances[numpy.arange(BATCH), targets] -= 1
    error = chances / BATCH
    for layer in reversed(range(len(weights))):
        numpy.matmul(values[layer].T, error, out=gradients[layer])
        if layer > 0:
            error = (error @ weights[layer].T) * (values[layer] > 0)
    return float(loss)


def main():
    seconds = float(sys.argv[1])
    world = MPI.COMM_WORLD
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "text"), "rb") as file:
        text = numpy.frombuffer(file.read(), numpy.uint8)
    shapes = list(zip(SIZES[:-1], SIZES[1:]))
    random = numpy.random.default_rng(1)
    weights = [random.standard_normal(shape, numpy.float32) * (2 / shape[0]) ** 0.5 for shape in shapes]
    random = numpy.random.default_rng(2 + world.rank)
    # All gradients in one buffer: one message for each step.
    buffer = numpy.zeros(sum(a * b for a, b in shapes), numpy.float32)
    gradients, offset = [], 0
    for a, b in shapes:
        gradients.append(buffer[offset:offset + a * b].reshape(a, b))
        offset += a * b
    in_mpi = 0.0

    def step():
        nonlocal in_mpi
        loss = gradients_of(weights, gradients, *batch_of(text, random))
        begin = time.perf_counter()
        world.Allreduce(MPI.IN_PLACE, buffer)
        in_mpi += time.perf_counter() - begin
        for weight, gradient in zip(weights, gradients):
            weight -= gradient * (0.05 / world.size)
        return loss

    first = step()
    begin = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    steps = world.bcast(max(20, int(seconds * WARM_UP / (time.perf_counter() - begin))))
    world.Barrier()
    in_mpi, begin = 0.0, time.perf_counter()
    for _ in range(steps):
        loss = step()
    elapsed = time.perf_counter() - begin
    if world.rank == 0:
        print("RESULT " + json.dumps({
            "what": "perceptron", "ranks": world.size, "bytes": buffer.nbytes, "steps": steps, "firstLoss": first, "lastLoss": loss,
            "stepsPerSecond": steps / elapsed, "shareOfMPI": in_mpi / elapsed,
        }), flush=True)


main()

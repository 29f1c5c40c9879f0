"""Trains a small network to recognize handwritten digits, on any number of MPI ranks.

Data-parallel: each rank has a share of the training digits and computes the
gradient of its part of a batch. One Allreduce per step sums these parts to the
gradient of the whole batch. All ranks apply the same update, so they keep the
same weights without ever sending them.

If CHECKPOINT_DIRECTORY is set, rank 0 saves the state of the training there. A run
that finds a checkpoint continues from it, also with another number of ranks.
"""

import json
import math
import os
import socket
import sys
import time

import numpy as np
from mpi4py import MPI

SEED = 1
SIDE = 8  # width and height of an image in pixels
LAYERS = (SIDE * SIDE, 256, 128, 10)  # from the pixels to a score for each digit
EPOCHS = 60
REPORT_EPOCHS = 5  # epochs between reports and between checkpoints
BATCH = 128  # over all ranks, so that the result does not depend on their number
LEARNING_RATE = 0.1
MOMENTUM = 0.9
TEST_SHARE = 0.2
WANTED_ACCURACY = 0.96


# Data


def load_digits():
    """Training and test digits, each as images and labels."""
    from sklearn import datasets  # slow to load, and needed on rank 0 alone

    images, labels = datasets.load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)  # pixels are 0 to 16
    order = np.random.default_rng(SEED).permutation(len(labels))
    test, train = np.split(order, [math.ceil(len(labels) * TEST_SHARE)])
    return (images[train], labels[train]), (images[test], labels[test])


def moved(images, random):
    """The images, each shifted by up to a pixel: 1,437 digits are few to learn from."""
    count = len(images)
    squares = images.reshape(count, SIDE, SIDE)
    row, column = random.integers(3, size=(2, count, 1, 1))
    rows, columns = row + np.arange(SIDE)[:, None], column + np.arange(SIDE)
    padded = np.pad(squares, ((0, 0), (1, 1), (1, 1)))
    neighbours = padded[np.arange(count)[:, None, None], rows, columns]
    distance = random.random((count, 1, 1), np.float32)
    return ((1 - distance) * squares + distance * neighbours).reshape(images.shape)


# Network


def new_vector():
    """A vector for all weights, so that there is one message, one update and one array to save."""
    return np.zeros(sum((inputs + 1) * outputs for inputs, outputs in zip(LAYERS, LAYERS[1:])), np.float32)


def layers(vector):
    """Weights and bias of each layer, as views of the vector."""
    views, start = [], 0
    for inputs, outputs in zip(LAYERS, LAYERS[1:]):
        end = start + inputs * outputs
        views.append((vector[start:end].reshape(inputs, outputs), vector[end : end + outputs]))
        start = end + outputs
    return views


def random_weights():
    vector = new_vector()
    random = np.random.default_rng(SEED)
    for weights, _ in layers(vector):
        weights[:] = random.normal(0, np.sqrt(2 / len(weights)), weights.shape)  # as ReLU wants it
    return vector


def forward(weights, images):
    """The inputs of each layer, and the scores of the last one."""
    inputs = [images]
    for matrix, bias in layers(weights)[:-1]:
        inputs.append(np.maximum(inputs[-1] @ matrix + bias, 0))
    matrix, bias = layers(weights)[-1]
    return inputs, inputs[-1] @ matrix + bias


def add_gradient(gradient, weights, images, labels):
    """Adds the gradient of the cross entropy, summed over the images, and returns that sum."""
    inputs, scores = forward(weights, images)
    scores -= scores.max(axis=1, keepdims=True)  # exp must not overflow
    logarithms = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    truth = np.eye(LAYERS[-1], dtype=np.float32)[labels]
    error = np.exp(logarithms) - truth
    parts = zip(inputs, layers(weights), layers(gradient))
    for given, (matrix, _), (matrix_gradient, bias_gradient) in reversed(list(parts)):
        matrix_gradient += given.T @ error
        bias_gradient += error.sum(axis=0)
        error = (error @ matrix.T) * (given > 0)
    return -(logarithms * truth).sum()


# Training


def train_epoch(world, epoch, steps, weights, velocity, images, labels):
    """Trains on the digits of all ranks once, and returns the mean loss."""
    rate = LEARNING_RATE * (1 + np.cos(np.pi * epoch / EPOCHS)) / 2
    # The seed depends on the epoch, so that a resumed run repeats the interrupted one.
    random = np.random.default_rng((SEED, epoch, world.rank))
    order = random.permutation(len(labels))
    epoch_sums = np.zeros(2)
    for batch in np.array_split(order, steps):
        # Shares differ by one digit, so the exact mean needs sums over all ranks.
        message = np.append(new_vector(), np.float32([0, len(batch)]))
        gradient, sums = message[:-2], message[-2:]
        sums[0] = add_gradient(gradient, weights, moved(images[batch], random), labels[batch])
        world.Allreduce(MPI.IN_PLACE, message)
        velocity *= MOMENTUM
        velocity -= rate * gradient / sums[1]
        weights += velocity
        epoch_sums += sums
    return epoch_sums[0] / epoch_sums[1]


def test_accuracy(world, weights, images, labels):
    """The accuracy over the test digits of all ranks."""
    _, scores = forward(weights, images)
    sums = np.array([np.sum(scores.argmax(axis=1) == labels), len(labels)])
    world.Allreduce(MPI.IN_PLACE, sums)
    return sums[0] / sums[1]


def ranks_agree(world, weights):
    """Whether all ranks have exactly the same weights."""
    reference = weights.copy()
    world.Bcast(reference)
    return world.allreduce(np.array_equal(reference, weights), MPI.LAND)


# Checkpoints


def checkpoint_file():
    directory = os.environ.get("CHECKPOINT_DIRECTORY")
    return directory and os.path.join(directory, "digits.npz")


def save_checkpoint(file, epoch, weights, velocity):
    """Replaces the file atomically: readers always find a complete checkpoint, also after a crash."""
    unfinished = file + ".unfinished"
    with open(unfinished, "wb") as content:
        np.savez(content, epoch=epoch, weights=weights, velocity=velocity)
        content.flush()
        os.fsync(content.fileno())
    os.replace(unfinished, file)


def load_state(file):
    """The number of completed epochs, the weights and the velocity, from the checkpoint if it exists."""
    if not file or not os.path.exists(file):
        return 0, random_weights(), new_vector()
    with np.load(file) as state:
        epoch, weights, velocity = int(state["epoch"]), state["weights"], state["velocity"]
    if weights.shape != new_vector().shape:
        sys.exit(f"{file} belongs to another network ({weights.size} weights, not {new_vector().size}): remove the file")
    print(f"continuing after epoch {epoch}, from {file}", flush=True)
    return epoch, weights, velocity


def main():
    world = MPI.COMM_WORLD
    is_first = world.rank == 0
    host = socket.gethostname()
    hosts = len(set(world.allgather(host)))

    train, test = world.bcast(load_digits() if is_first else None)
    total, share = len(train[1]), slice(world.rank, None, world.size)
    train, test = [[array[share] for array in part] for part in (train, test)]
    print(f"rank {world.rank} of {world.size} on {host}: {len(train[1])} of {total} training digits", flush=True)

    file = checkpoint_file()
    done, weights, velocity = world.bcast(load_state(file) if is_first else None)
    begin = time.monotonic()
    for epoch in range(done, EPOCHS):
        loss = train_epoch(world, epoch, math.ceil(total / BATCH), weights, velocity, *train)
        if (epoch + 1) % REPORT_EPOCHS == 0:
            accuracy = test_accuracy(world, weights, *test)
            if is_first:
                speed = (epoch + 1 - done) * total / (time.monotonic() - begin)
                print(
                    f"epoch {epoch + 1:3} of {EPOCHS}: loss {loss:.4f}, test accuracy {100 * accuracy:.1f} %, "
                    f"{speed:,.0f} samples/s by {world.size} ranks on {hosts} hosts",
                    flush=True,
                )
                # Trireme reads such lines: odh shows the progress and when the training will be complete.
                print("trireme: " + json.dumps({"step": epoch + 1, "of": EPOCHS, "loss": round(float(loss), 4)}), flush=True)
                if file:
                    save_checkpoint(file, epoch + 1, weights, velocity)

    accuracy = test_accuracy(world, weights, *test)
    agree = ranks_agree(world, weights)
    if is_first:
        print(f"the weights of all ranks are {'equal' if agree else 'NOT EQUAL'}", flush=True)
        print(f"test accuracy {100 * accuracy:.1f} %", flush=True)
        if not agree or accuracy < WANTED_ACCURACY:
            sys.exit(f"the training failed: expected equal weights on all ranks and a test accuracy of at least {100 * WANTED_ACCURACY:.0f} %")


if __name__ == "__main__":
    main()

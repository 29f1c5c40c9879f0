# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.fakeapi import FakeAPI
from trireme import _kube
from trireme.training import TrainingClient

RUNTIME = {
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "mpi-openmpi-cpu", "labels": {"training.kubeflow.org/framework": "mpi"}},
    "spec": {
        "mlPolicy": {"numNodes": 2, "mpiImplementation": "OpenMPI", "slotsPerWorker": 4},
        "template": {
            "spec": {
                "replicatedJobs": [{"name": "launcher", "template": {"spec": {"containers": [{"name": "launcher"}]}}}]
            }
        },
    },
}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAPI]:
    monkeypatch.setattr(_kube, "_pause", lambda attempt: 0.001)
    fake = FakeAPI()
    fake.put("clustertrainingruntimes", "", RUNTIME)
    yield fake
    fake.close()


@pytest.fixture
def client(api: FakeAPI) -> TrainingClient:
    return TrainingClient(kube=api.kube())


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Every test ends without threads of the package."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and "trireme" in t.name]
    assert not left

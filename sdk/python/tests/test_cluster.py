# SPDX-License-Identifier: Apache-2.0
"""Real jobs on the cluster of KUBECONFIG. The image has the Python of Debian 12, as this machine may."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import trireme
from tests import images
from tests.images import IMAGE, OTHER_IMAGE
from trireme import errors
from trireme._kube import Kube
from trireme.mpijob import MPIJobClient, ResourceSpec, WorkerSpec
from trireme.training import AsyncTrainingClient, TrainingClient

pytestmark = pytest.mark.cluster

SMALL: dict[str, Any] = {
    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
    "launcher_resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
    # Ranks share the cores of a small machine.
    "env": {"OMPI_MCA_mpi_yield_when_idle": "1"},
}
WAIT = 120
FACTOR = 10


def need_image() -> None:
    """Fails where no function can be sent to pods: skipped tests are not seen in a green run."""
    if reason := images.missing():
        pytest.fail(reason, pytrace=False)


@pytest.fixture(scope="module")
def namespace() -> Iterator[str]:
    need_image()
    kube = Kube.connect()
    name = f"sdk-{secrets.token_hex(3)}"
    kube.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    kube.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def client(namespace: str) -> Iterator[trireme.Client]:
    with trireme.Client(namespace=namespace, image=IMAGE) as client:
        yield client


class Shown:
    """Keeps what a followed job shows."""

    def __init__(self) -> None:
        self.lines: list[tuple[int | None, str]] = []
        self.reports: list[dict[str, Any]] = []
        self.phases: list[str | None] = []

    def line(self, rank: int | None, line: str) -> None:
        self.lines.append((rank, line))

    def progress(self, values: dict[str, Any]) -> None:
        self.reports.append(values)

    def job(self, job: Any) -> None:
        self.phases.append(job.status.phase)

    def close(self) -> None:
        self.phases.append("closed")


def train(lr: float) -> tuple[int, float]:
    from mpi4py import MPI

    import trireme

    world = MPI.COMM_WORLD
    for step in range(5):
        loss = world.allreduce(lr * world.rank) / (step + 1)
        trireme.report(step=step, of=5, loss=loss)
    print("hello from", world.rank)
    return world.rank, lr * FACTOR


def test_ten_lines(client: trireme.Client) -> None:
    job = client.run(train, lr=0.5, nodes=2, slots=2, **SMALL)
    shown = Shown()
    job.follow(shown)
    assert job.results(WAIT) == [(rank, 5.0) for rank in range(4)]
    assert [r["step"] for r in shown.reports] == [0, 1, 2, 3, 4] and shown.reports[0]["loss"] == 3.0
    assert {(rank, f"hello from {rank}") for rank in range(4)} <= set(shown.lines)
    assert not any("trireme-result" in line for _, line in shown.lines)
    assert shown.phases[-2:] == ["Succeeded", "closed"]
    assert "trireme-result" not in job.logs() and "hello from 3" in job.logs()
    # Nobody has to remember the job: its Secret has the key of the run.
    again = client.job(job.name)
    assert again.results(WAIT) == [(rank, 5.0) for rank in range(4)]
    assert job.name in [j.name for j in client.jobs()]
    assert "Succeeded" in job._repr_html_() and f"{job.name}-worker" in job._repr_html_()
    job.delete()
    with pytest.raises(errors.NotFoundError):
        client._jobs.wait_deleted(job.name, job.namespace, WAIT)
        client.job(job.name)


class DataError(Exception):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def fail_on_rank_3() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 3:
        raise DataError("/data/part-3")
    # The others wait for rank 3, as ranks do.
    MPI.COMM_WORLD.Barrier()


def test_exception_on_rank_3(client: trireme.Client) -> None:
    job = client.run(fail_on_rank_3, nodes=2, slots=2, **SMALL)
    with pytest.raises(trireme.JobFailed) as raised:
        job.results(WAIT)
    failure = raised.value
    assert failure.rank == 3 and failure.reason == "TrainingError"
    assert failure.node and failure.node == next(p.node for p in job.status.worker_pod_statuses if p.index == 1)
    assert f"rank 3 on {job.name}-worker-0-1 raised DataError" in str(failure)
    assert "in fail_on_rank_3" in failure.traceback and 'raise DataError("/data/part-3")' in str(failure)
    assert type(failure.exception).__name__ == "DataError" and failure.exception.path == "/data/part-3"
    assert failure.__cause__ is failure.exception and failure.last_lines[-1].endswith("DataError: /data/part-3")
    assert failure.status.failure_reason == "TrainingError"
    assert failure.status.failed_process.rank == 3


def exceed_memory() -> None:
    import numpy
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 1:
        numpy.ones(1 << 30)
    MPI.COMM_WORLD.Barrier()


def test_out_of_memory(client: trireme.Client) -> None:
    small = {**SMALL, "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}}
    job = client.run(exceed_memory, nodes=2, **small)
    with pytest.raises(trireme.JobFailed) as raised:
        job.results(WAIT)
    assert raised.value.reason == "WorkerFailed"
    assert "memory" in raised.value.advice and "128Mi" in raised.value.advice


def large() -> bytes:
    from mpi4py import MPI

    return bytes([MPI.COMM_WORLD.rank]) + os.urandom(700_000)


def test_large_results_of_many_ranks(client: trireme.Client) -> None:
    results = client.run(large, nodes=2, slots=4, **SMALL).results(WAIT)
    assert [result[0] for result in results] == list(range(8)) and {len(result) for result in results} == {700_001}


def too_large() -> bytes:
    return bytes(2000)


def test_a_result_above_the_limit(client: trireme.Client) -> None:
    with pytest.raises(trireme.JobFailed, match="at most 1000 are sent back: write it to a volume"):
        client.run(too_large, max_result_bytes=1000, **SMALL).results(WAIT)


def test_another_python(client: trireme.Client) -> None:
    with pytest.raises(trireme.JobFailed, match="The function was not called") as raised:
        client.run(train, lr=1, image=OTHER_IMAGE, **SMALL).results(WAIT)
    assert raised.value.reason == "PythonVersionMismatch"


def test_code(client: trireme.Client, tmp_path: Any) -> None:
    (tmp_path / "sdk_helper.py").write_text("def text():\n    return open('data.txt').read()\n")
    (tmp_path / "data.txt").write_text("from the folder")

    def use_code() -> str:
        import sdk_helper

        return sdk_helper.text()

    assert client.run(use_code, code=tmp_path, **SMALL).results(WAIT) == ["from the folder"]


def square(x: int) -> int:
    return x * x


def test_map(client: trireme.Client) -> None:
    array = client.map(square, [1, 2, 3], **SMALL)
    assert array.results(WAIT) == [[1], [4], [9]]
    assert [row["phase"] for row in array.rows()] == ["Succeeded"] * 3
    assert len(array.to_frame()) == 3
    array.delete()


def where() -> tuple[int, int, str]:
    import socket

    from mpi4py import MPI

    return MPI.COMM_WORLD.rank, MPI.COMM_WORLD.allreduce(1), socket.gethostname()


def test_allocation(client: trireme.Client, namespace: str) -> None:
    shown = Shown()
    with client.allocate(nodes=2, slots=2, output=shown, **SMALL) as ranks:
        pods = [f"{ranks.name}-worker-0-{rank // 2}" for rank in range(4)]
        assert ranks.run(where) == [(rank, 4, pod) for rank, pod in enumerate(pods)]
        assert ranks.run(train, lr=0.5) == [(rank, 5.0) for rank in range(4)]
        assert [r["step"] for r in shown.reports] == [0, 1, 2, 3, 4]
        assert {(rank, f"hello from {rank}") for rank in range(4)} <= set(shown.lines)
        with pytest.raises(trireme.JobFailed, match="raised DataError") as raised:
            ranks.run(fail_on_rank_3)
        assert raised.value.rank == 3 and raised.value.node and raised.value.exception.path == "/data/part-3"
        with pytest.raises(trireme.JobFailed) as raised:
            ranks.run(os.kill, 0, 9)
        assert raised.value.reason == "WorkerFailed"
        assert ranks.run(where) == [(rank, 4, pod) for rank, pod in enumerate(pods)]
        log = client._jobs.log(ranks.status.launcher_pod_status.name, namespace, {})
        assert "hello from 3" in log and "trireme-result" not in log
    with contextlib.suppress(errors.NotFoundError):
        client._jobs.wait_deleted(ranks.name, namespace, WAIT)
    deadline = time.monotonic() + WAIT
    while client._jobs.pods(ranks.name, namespace) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not client._jobs.pods(ranks.name, namespace)


def sleep() -> None:
    print("begun", flush=True)
    time.sleep(1000)


class Interrupting(Shown):
    """Plays a user who presses Ctrl-C when the function has begun."""

    def line(self, rank: int | None, line: str) -> None:
        if "begun" in line:
            raise KeyboardInterrupt


def test_interrupted_call_of_an_allocation(client: trireme.Client, namespace: str) -> None:
    ranks = client.allocate(output=Interrupting(), max_idle_seconds=10, **SMALL)
    with pytest.raises(KeyboardInterrupt):
        ranks.run(sleep)
    # The idle time begins when the call has ended.
    assert client._jobs.wait(ranks.name, namespace, WAIT).status.phase == "Succeeded"
    with pytest.raises(errors.AllocationEndedError):
        ranks.run(sleep)
    ranks.close()


TEN_LINES = """
from trireme import Client
def train(lr):
    from mpi4py import MPI; import trireme
    for step in range(3):
        trireme.report(step=step, of=3, loss=1 / (step + 1))
    return MPI.COMM_WORLD.rank
job = Client().run(train, lr=0.1, nodes=2, slots=2, code=".", **SETTINGS)
job.follow()
print(job.results())
"""


def test_ten_lines_in_a_pod(client: trireme.Client, namespace: str) -> None:
    """With the identity of the pod, as in a notebook on the cluster. The package comes from this machine."""
    kube, core = client._kube, f"/api/v1/namespaces/{namespace}"
    kube.create(f"{core}/serviceaccounts", {"metadata": {"name": "notebook"}})
    binding = {
        "metadata": {"name": "notebook"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "notebook", "namespace": namespace}],
    }
    kube.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    folders = {"sdk": str(Path(trireme.__file__).parent.parent), "packages": str(Path(yaml.__file__).parent.parent)}
    container = {
        "name": "notebook",
        "image": IMAGE,
        "command": ["python3", "-c", f"SETTINGS = {SMALL!r}\n{TEN_LINES}"],
        "workingDir": "/work",
        "env": [{"name": "PYTHONPATH", "value": "/sdk:/packages"}, {"name": "TRIREME_IMAGE", "value": IMAGE}],
        "volumeMounts": [
            {"name": "work", "mountPath": "/work"},
            *({"name": name, "mountPath": f"/{name}", "readOnly": True} for name in folders),
        ],
    }
    spec = {
        "serviceAccountName": "notebook",
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [
            {"name": "work", "emptyDir": {}},
            *({"name": name, "hostPath": {"path": path}} for name, path in folders.items()),
        ],
    }
    kube.create(f"{core}/pods", {"metadata": {"name": "notebook"}, "spec": spec})
    deadline = time.monotonic() + WAIT
    while (phase := kube.get(f"{core}/pods/notebook")["status"]["phase"]) not in ("Succeeded", "Failed"):
        assert time.monotonic() < deadline, phase
        time.sleep(0.5)
    log = kube.text(f"{core}/pods/notebook/log")
    assert phase == "Succeeded" and log.endswith("[0, 1, 2, 3]\n") and "step 2 of 3" in log, log


def test_preflight(client: trireme.Client, namespace: str) -> None:
    quota = {"metadata": {"name": "pods"}, "spec": {"hard": {"pods": "40"}}}
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    client._kube.create(path, quota)
    try:
        plan = client.run(square, 2, nodes=3, slots=2, preflight=True, **SMALL)
        assert plan.totals["pods"] == 4 and plan.totals["ranks"] == 6 and plan.totals["cpu"] == pytest.approx(0.2)
        assert f"TrainJob {plan.manifest['metadata']['name']}" in str(plan) and "quota pods" in str(plan)
        with pytest.raises(errors.NotFoundError):
            client._jobs.get(plan.manifest["metadata"]["name"], namespace)
        with pytest.raises(errors.QuotaExceededError, match="quota"):
            client.run(square, 2, nodes=60, **SMALL)
    finally:
        client._kube.delete(path + "/pods")
    secrets_, _ = client._kube.items(
        f"/api/v1/namespaces/{namespace}/secrets", {"labelSelector": "training.kubeflow.org/run"}
    )
    jobs = {job.metadata.name for job in client._jobs.all(namespace)}
    assert {s["metadata"]["ownerReferences"][0]["name"] for s in secrets_} <= jobs


def test_wrong_input(client: trireme.Client, namespace: str) -> None:
    training = TrainingClient()
    with pytest.raises(RuntimeError, match=f"Runtime none not found in namespace {namespace}"):
        training.create_mpi_job("a", "none", 2, IMAGE, ["true"], namespace=namespace)
    with pytest.raises(ValueError, match="memory"):
        bad = {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Mi"}}
        training.create_mpi_job("a", "mpi-openmpi-cpu", 2, IMAGE, ["true"], resources_per_node=bad, namespace=namespace)
    with pytest.raises(errors.NotFoundError):
        training.get_job("a", namespace)


def test_training_client(namespace: str) -> None:
    client = TrainingClient()
    job = client.create_mpi_job(
        "plain",
        "mpi-openmpi-cpu",
        2,
        IMAGE,
        ["sh", "-c", 'echo rank $OMPI_COMM_WORLD_RANK; echo \'trireme: {"step": 1, "of": 2, "loss": 0.5}\''],
        resources_per_node=SMALL["resources"],
        launcher_resources=SMALL["launcher_resources"],
        slots_per_worker=1,
        namespace=namespace,
        labels={"team": "a"},
    )
    assert job.metadata.uid and job.spec.trainer.num_nodes == 2
    events = list(client.stream_job_events("plain", namespace))
    assert client.wait_for_job_completion("plain", namespace, timeout=WAIT).status.phase == "Succeeded"
    assert len(events) > 1 and all(event.message and event.timestamp for event in events)
    status = client.get_job_status("plain", namespace)
    assert status.finished and status.worker_count == 2 and status.timeline
    assert "rank 1" in client.get_job_logs("plain", namespace, pod_type="launcher")
    assert "rank 1" in list(client.get_job_logs("plain", namespace, pod_type="launcher", follow=True))
    assert client.get_job_metrics("plain", namespace).progress[0]["loss"] == 0.5
    listed = client.list_jobs(namespace, runtime="mpi-openmpi-cpu", status="Succeeded", label_selector="team=a")
    assert [j.metadata.name for j in listed] == ["plain"]
    assert "mpi-openmpi-cpu" in [r.name for r in client.list_runtimes(namespace, framework="mpi")]
    client.delete_job("plain", namespace)


def test_mpijob_client(namespace: str) -> None:
    client = MPIJobClient(namespace=namespace)
    resources = ResourceSpec(cpu="50m", memory="128Mi")
    worker = WorkerSpec(2, IMAGE, resources, command=["mpirun", "hostname"])
    assert not client.create_mpijob("hosts", worker_spec=worker, dry_run=True).status.conditions
    launcher = WorkerSpec(1, IMAGE, resources, command=["mpirun", "hostname"])
    job = client.create_mpijob("hosts", worker_spec=worker, launcher_spec=launcher)
    phases: list[str] = []
    job.monitor(lambda j: phases.append(j.phase))
    assert job.wait_for_completion(WAIT) == "Succeeded" == phases[-1]
    assert job.is_succeeded() and job.is_completed() and not job.is_failed() and not job.is_running()
    logs = job.get_logs()
    assert "hosts-worker-0" in "".join(logs.values())
    assert [j.name for j in client.list_mpijobs()] == ["hosts"]
    assert MPIJobClient(namespace=namespace).get_mpijob("hosts").raise_for_failure() is not None
    job.delete(wait=True)
    with pytest.raises(errors.NotFoundError, match=f"MPIJob hosts not found in namespace {namespace}"):
        client.get_mpijob("hosts")


def test_permissions(client: trireme.Client, namespace: str) -> None:
    """The role trainjob-editor and the rules of the documentation are enough."""
    kube, base = client._kube, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    kube.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "scientist"}})
    subject = {"kind": "ServiceAccount", "name": "scientist", "namespace": namespace}

    def bind(name: str, kind: str, role: str) -> None:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
        kube.create(base + "/rolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})

    bind("editor", "ClusterRole", "trainjob-editor")
    token = kube.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/scientist/token", {"spec": {"expirationSeconds": 3600}}
    )
    scientist = trireme.Client(namespace=namespace, image=IMAGE)
    configuration = scientist._kube._client.configuration
    configuration.cert_file = configuration.key_file = None
    configuration.api_key = {"authorization": f"Bearer {token['status']['token']}"}
    limited = Kube(configuration, namespace)
    scientist._kube = limited
    scientist._training = TrainingClient(kube=limited)
    scientist._jobs = scientist._training._jobs
    # Admission: a job must not read a Secret that its creator cannot read.
    with pytest.raises(errors.InvalidObjectError, match="may not use Secret"):
        scientist.run(square, 3, **SMALL)
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    kube.create(base + "/roles", {"metadata": {"name": "reads"}, "rules": rules})
    bind("reads", "Role", "reads")
    with pytest.raises(errors.ForbiddenError, match="to create and get secrets"):
        scientist.run(square, 3, name="refused", **SMALL)
    with pytest.raises(errors.NotFoundError):
        client._jobs.wait_deleted("refused", namespace, WAIT)
        client._jobs.get("refused", namespace)
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}]
    kube.create(base + "/roles", {"metadata": {"name": "runs"}, "rules": rules})
    bind("runs", "Role", "runs")
    job = scientist.run(square, 3, **SMALL)
    assert job.follow(Shown()).results(WAIT) == [9]
    job.delete()
    with pytest.raises(errors.ForbiddenError, match="create and get pods/exec"):
        scientist.allocate(**SMALL)
    rules = [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]}]
    kube.create(base + "/roles", {"metadata": {"name": "allocates"}, "rules": rules})
    bind("allocates", "Role", "allocates")
    with scientist.allocate(output=Shown(), **SMALL) as ranks:
        assert ranks.run(square, 3) == [9]


def test_follow_uses_one_watch(client: trireme.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, str]] = []
    original = Kube._send

    def send(self: Kube, method: str, path: str, query: Any = None, *args: Any, **kwargs: Any) -> Any:
        sent.append((path, str(query)))
        return original(self, method, path, query, *args, **kwargs)

    job = client.run(square, 3, **SMALL)
    monkeypatch.setattr(Kube, "_send", send)
    assert job.follow(Shown()).results(WAIT) == [9]
    # One list, one watch, one log, from which also the results are read. The log is asked once more for
    # lines that were written after its stream ended.
    assert 3 <= len(sent) <= 4, sent
    assert not [t for t in threading.enumerate() if t.name.startswith("trireme")]


def test_asynchronous_client(namespace: str) -> None:
    async def main() -> None:
        async with AsyncTrainingClient() as client:
            settings = {"resources_per_node": SMALL["resources"], "launcher_resources": SMALL["launcher_resources"]}
            await client.create_mpi_job(
                "slow", "mpi-openmpi-cpu", 1, IMAGE, ["sleep", "600"], namespace=namespace, **settings
            )
            waiting = asyncio.create_task(client.wait_for_job_completion("slow", namespace))
            async for event in client.stream_job_events("slow", namespace):
                assert event.reason
                break
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await client.delete_job("slow", namespace)

    asyncio.run(main())

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import inspect
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakeapi import FakeAPI
from trireme import errors
from trireme.mpijob import (
    TEMPLATES,
    AsyncMPIJob,
    AsyncMPIJobClient,
    MPIJob,
    MPIJobClient,
    ResourceRequirements,
    ResourceSpec,
    WorkerSpec,
)

JOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"


@pytest.fixture
def client(api: FakeAPI) -> MPIJobClient:
    return MPIJobClient(kube=api.kube())


def positional(function: Any) -> list[str]:
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD][1:]


@pytest.mark.parametrize("kind", [MPIJobClient, AsyncMPIJobClient])
def test_signatures_of_the_contract(kind: Any) -> None:
    assert positional(MPIJobClient.__init__) == ["kubeconfig", "namespace"]
    assert set(positional(kind.create_mpijob)) == {
        "name",
        "namespace",
        "worker_spec",
        "from_file",
        "from_dict",
        "launcher_spec",
        "mpi_implementation",
        "slots_per_worker",
        "dry_run",
    }
    assert positional(kind.get_mpijob)[0] == "name"
    assert positional(kind.list_mpijobs) == ["namespace", "label_selector"]
    assert positional(kind.delete_mpijob)[:3] == ["name", "namespace", "wait"]


def test_signatures_of_the_job() -> None:
    parameters = inspect.signature(MPIJob.__init__).parameters
    assert positional(MPIJob.__init__) == [
        "name",
        "namespace",
        "workers",
        "image",
        "command",
        "args",
        "resources",
        "volume_mounts",
        "volumes",
        "env",
        "node_selector",
        "affinity",
        "tolerations",
        "slots_per_worker",
        "clean_pod_policy",
        "active_deadline_seconds",
        "backoff_limit",
        "ttl_seconds_after_finished",
    ]
    defaults = {
        "namespace": "default",
        "workers": 2,
        "slots_per_worker": 1,
        "clean_pod_policy": "Running",
        "backoff_limit": 6,
    }
    assert {name: parameters[name].default for name in defaults} == defaults
    assert positional(MPIJob.wait_for_completion) == ["timeout", "poll_interval"]
    assert positional(MPIJob.get_logs) == ["worker_index", "follow", "tail_lines"]
    for name in [
        "create",
        "refresh",
        "get_status",
        "delete",
        "get",
        "list",
        "get_worker_statuses",
        "get_metrics",
        "to_yaml",
        "from_yaml",
        "to_dict",
        "monitor",
    ]:
        assert callable(getattr(MPIJob, name))
    for name in ["status", "phase", "workers_running", "workers_succeeded", "workers_failed"]:
        assert isinstance(inspect.getattr_static(MPIJob, name), property)


def job(client: MPIJobClient, name: str = "a", **settings: Any) -> MPIJob:
    return MPIJob(name, image="image", command=["mpirun", "true"], client=client, **settings)


def test_create(client: MPIJobClient, api: FakeAPI) -> None:
    created = job(
        client, workers=3, env={"A": "1"}, slots_per_worker=2, labels={"x": "y"}, active_deadline_seconds=9
    ).create()
    stored = api.objects["mpijobs", "default", "a"]
    spec = stored["spec"]
    assert spec["slotsPerWorker"] == 2 and spec["runPolicy"] == {
        "cleanPodPolicy": "Running",
        "activeDeadlineSeconds": 9,
        "backoffLimit": 6,
    }
    launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    worker = spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert launcher["command"] == ["mpirun", "true"] and "command" not in worker
    assert launcher["env"] == worker["env"] == [{"name": "A", "value": "1"}]
    assert worker["resources"]["limits"] == {"cpu": "4", "memory": "16Gi"}
    assert created.phase == "Pending" and created.name == "a" and "MPIJob default/a" in repr(created)
    assert MPIJob.from_yaml(created.to_yaml()).to_dict() == created.to_dict() == stored
    with pytest.raises(ValueError, match="not an MPIJob"):
        MPIJob.from_yaml("kind: Pod")


@pytest.mark.parametrize(
    "settings",
    [{"workers": 1}, {"name": "A"}, {"slots_per_worker": 0}, {"mpi_implementation": "MVAPICH"}],
)
def test_invalid_values(client: MPIJobClient, api: FakeAPI, settings: Any) -> None:
    with pytest.raises(ValueError):
        job(client, **settings)
    with pytest.raises(ValueError, match="image"):
        MPIJob("a", client=client)


def test_status(client: MPIJobClient, api: FakeAPI) -> None:
    created = job(client).create()
    assert not created.is_running() and not created.is_completed()
    status = {"phase": "Running", "readyWorkerCount": 1, "replicaStatuses": {"Worker": {"failed": 1, "succeeded": 2}}}
    api.status("a", plural="mpijobs", **status)
    assert created.get_status() == "Running" and created.is_running() and created.status.phase == "Running"
    assert (created.workers_running, created.workers_succeeded, created.workers_failed) == (1, 2, 1)
    api.status("a", plural="mpijobs", phase="Failed", failureReason="WorkerFailed", failureMessage="m")
    assert created.wait_for_completion(10) == "Failed" and created.is_failed() and created.is_completed()
    with pytest.raises(errors.JobFailedError, match="WorkerFailed: m"):
        created.raise_for_failure()
    assert "WorkerFailed" in created._repr_html_() and created.spec.slots_per_worker == 1
    assert list(client.list_mpijobs().to_frame()["phase"]) == ["Failed"]
    phases: list[str] = []
    created.monitor(lambda j: phases.append(j.phase))
    assert phases == ["Failed"]


def test_pods(client: MPIJobClient, api: FakeAPI) -> None:
    created = job(client).create()
    for index in (1, 0):
        labels = {"job-name": "a", "job-type": "mpijob", "replica-type": "worker", "replica-index": str(index)}
        name = f"a-worker-{index}"
        meta = {"name": name, "labels": {f"training.kubeflow.org/{key}": value for key, value in labels.items()}}
        status = {
            "phase": "Running",
            "startTime": "2026-01-02T03:04:05Z",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        api.put("pods", "default", {"metadata": meta, "spec": {"nodeName": "n"}, "status": status})
        api.log(name, f"from {index}", end=True)
    statuses = created.get_worker_statuses()
    assert [(s["index"], s["name"], s["ready"], s["node"]) for s in statuses] == [
        (0, "a-worker-0", True, "n"),
        (1, "a-worker-1", True, "n"),
    ]
    assert created.get_logs() == {"a-worker-0": "from 0\n", "a-worker-1": "from 1\n"}
    assert created.get_logs(worker=1) == created.get_logs(1) == {"a-worker-1": "from 1\n"}
    assert list(created.get_logs(0, follow=True)) == ["from 0"]
    api.fault("GET", "/apis/metrics.*", 403)
    assert created.get_metrics().pods == []


def test_sources(client: MPIJobClient, api: FakeAPI, tmp_path: Path) -> None:
    worker = WorkerSpec(2, "image", ResourceSpec(), command=["mpirun", "true"])
    assert client.create_mpijob("a", worker_spec=worker).name == "a"
    text = job(client, "b").to_yaml()
    (tmp_path / "b.yaml").write_text(text)
    assert client.create_mpijob(from_file=tmp_path / "b.yaml").name == "b"
    assert client.create_mpijob("c", from_dict=job(client, "b").to_dict()).name == "c"
    assert client.create_mpijob("d", from_dict=job(client, "b").to_dict(), dry_run=True).name == "d"
    assert [j.name for j in client.list_mpijobs()] == ["a", "b", "c"]
    for wrong in ({}, {"worker_spec": worker, "from_dict": {}}):
        with pytest.raises(ValueError, match="exactly one"):
            client.create_mpijob("e", **wrong)
    with pytest.raises(ValueError, match="a name is required"):
        client.create_mpijob(worker_spec=worker)


@pytest.mark.parametrize("template", sorted(TEMPLATES))
def test_templates(client: MPIJobClient, api: FakeAPI, template: str) -> None:
    created = client.from_template(template, "a", "image", 4, env={"MINE": "1"}).create()
    spec = created.to_dict()["spec"]
    container = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
    assert container["command"][0] == "mpirun" and {"name": "MINE", "value": "1"} in container["env"]
    assert spec["mpiImplementation"] == ("IntelMPI" if template.startswith("intel") else "OpenMPI")
    with pytest.raises(ValueError, match="deepspeed-mpi"):
        client.from_template("tensorflow", "a", "image")


def test_delete(client: MPIJobClient, api: FakeAPI) -> None:
    created = job(client).create()
    created.delete(wait=True)
    with pytest.raises(errors.NotFoundError, match="MPIJob a not found in namespace default"):
        created.refresh()
    with pytest.raises(errors.NotFoundError, match="MPIJob a not found in namespace default"):
        client.delete_mpijob("a")
    created.close()


def test_delete_waits_for_finalizers(client: MPIJobClient, api: FakeAPI) -> None:
    job(client).create()
    thread = threading.Thread(target=lambda: (watched(api), api.delete("mpijobs", "default", "a")))
    thread.start()
    client._jobs.wait_deleted("a", "default", 20)
    thread.join()
    assert ("mpijobs", "default", "a") not in api.objects


def watched(api: FakeAPI) -> None:
    while not api.count("GET", JOBS, watch="true"):
        time.sleep(0.005)


def test_class_methods(api: FakeAPI, monkeypatch: pytest.MonkeyPatch, client: MPIJobClient) -> None:
    monkeypatch.setattr("trireme.mpijob.client.Kube.connect", lambda *_: api.kube())
    MPIJob("a", image="image").create()
    assert MPIJob.get("a").name == "a" and len(MPIJob.list()) == 1


def test_asynchronous_job(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trireme.mpijob.client.Kube.connect", lambda *_: api.kube())

    async def main() -> None:
        created = AsyncMPIJob("a", image="image", command=["mpirun", "true"])
        assert await created.create() is created
        api.status("a", plural="mpijobs", phase="Succeeded")
        assert await created.refresh() is created
        assert (created.name, created.phase, created.status.finished) == ("a", "Succeeded", True)
        found = await AsyncMPIJob.get("a")
        assert isinstance(found, AsyncMPIJob) and await found.wait_for_completion(10) == "Succeeded"
        assert len(await AsyncMPIJob.list()) == 1 and "Succeeded" in found._repr_html_()
        copy = await AsyncMPIJob.from_yaml(await created.to_yaml())
        assert isinstance(copy, AsyncMPIJob) and copy.namespace == "default"

    asyncio.run(main())


def test_resources() -> None:
    spec = ResourceSpec(4, "16Gi", 2, "amd.com")
    requirements = spec.to_resource_requirements()
    assert requirements["limits"] == {"cpu": "4", "memory": "16Gi", "amd.com/gpu": "2"} == requirements["requests"]
    assert ResourceSpec.from_resource_requirements(requirements) == ResourceSpec("4", "16Gi", 2, "amd.com")
    assert spec.calculate_total(3) == {"cpu": 12, "memory": 48 << 30, "gpu": 6}
    assert (ResourceRequirements().cpu, ResourceRequirements().memory, ResourceRequirements().gpu) == (4, "16Gi", 0)
    for wrong in ({"cpu": 0}, {"cpu": -1}, {"memory": "much"}, {"gpu": 17}, {"gpu": -1}):
        with pytest.raises(ValueError):
            ResourceRequirements(**wrong)


def test_models_match_the_crds() -> None:
    import subprocess
    import sys

    script = Path(__file__).parent.parent / "tools" / "generate_models.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

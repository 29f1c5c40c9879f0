# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import inspect
import threading
import time
import warnings
from typing import Any

import pytest

import tests.images
import tests.test_cluster
from tests.fakeapi import FakeAPI
from trireme import errors
from trireme.training import AsyncTrainingClient, EnvVar, ResourceRequirements, TrainingClient, TrainJob
from trireme.training.client import duration_seconds, quantity, resources
from trireme.training.testing import MockTrainingClient

JOBS = "/apis/kubeflow.org/v2alpha1/namespaces/default/trainjobs"


def create(client: TrainingClient, name: str = "a", **settings: Any) -> TrainJob:
    return client.create_mpi_job(
        name, "mpi-openmpi-cpu", settings.pop("num_nodes", 2), "image", ["python3", "train.py"], **settings
    )


# Parameters of the contracts, in their order.
SIGNATURES = {
    "create_mpi_job": "name runtime num_nodes image command args resources_per_node env volumes volume_mounts "
    "namespace labels annotations",
    "get_job": "name namespace",
    "get_job_status": "name namespace",
    "wait_for_job_completion": "name namespace timeout polling_interval",
    "stream_job_events": "name namespace",
    "get_job_logs": "name namespace pod_type pod_index tail_lines since_seconds follow",
    "delete_job": "name namespace grace_period_seconds",
    "list_jobs": "namespace runtime status label_selector",
    "get_job_metrics": "name namespace time_range",
    "list_runtimes": "namespace framework",
}
DEFAULTS = {
    ("create_mpi_job", "namespace"): "default",
    ("create_mpi_job", "command"): None,
    ("wait_for_job_completion", "timeout"): None,
    ("wait_for_job_completion", "polling_interval"): 10,
    ("get_job_logs", "pod_type"): "all",
    ("get_job_logs", "tail_lines"): 100,
    ("get_job_logs", "follow"): False,
    ("delete_job", "grace_period_seconds"): 30,
    ("get_job_metrics", "time_range"): "1h",
}


@pytest.mark.parametrize("kind", [TrainingClient, MockTrainingClient, AsyncTrainingClient])
def test_signatures_of_the_contract(kind: Any) -> None:
    for name, parameters in SIGNATURES.items():
        method = inspect.signature(getattr(kind, name))
        positional = [p.name for p in method.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert positional == ["self", *parameters.split()], name
    for (name, parameter), default in DEFAULTS.items():
        assert inspect.signature(getattr(kind, name)).parameters[parameter].default == default, (name, parameter)
    constructor = inspect.signature(TrainingClient.__init__).parameters
    assert list(constructor)[:3] == ["self", "config_file", "in_cluster"]


def test_every_public_part_has_a_description() -> None:
    import trireme.job
    import trireme.mpijob
    import trireme.run
    import trireme.training.testing

    for owner in (TrainingClient, MockTrainingClient, trireme.run.Client, trireme.job.Job, trireme.mpijob.MPIJob):
        for name, member in inspect.getmembers(owner, inspect.isfunction):
            assert name.startswith("_") or member.__doc__, f"{owner.__name__}.{name}"


def test_exceptions() -> None:
    for kind, builtin in {
        errors.ValidationError: ValueError,
        errors.RuntimeUnavailableError: RuntimeError,
        errors.WaitTimeoutError: TimeoutError,
    }.items():
        assert issubclass(kind, builtin) and issubclass(kind, errors.TrainingSDKException)
    for kind in (errors.NotFoundError, errors.ForbiddenError, errors.UnauthorizedError, errors.QuotaExceededError):
        assert issubclass(kind, errors.K8sApiException)
    assert issubclass(errors.JobFailed, errors.JobFailedError)
    assert errors.ODHError is errors.TrainingSDKException


def test_create(client: TrainingClient, api: FakeAPI) -> None:
    job = create(
        client,
        args=["--epochs", "3"],
        resources_per_node={"cpu": 4, "nvidia.com/gpu": 1},
        env={"A": "1"},
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        volume_mounts=[{"name": "data", "mountPath": "/data"}],
        labels={"team": "a"},
        annotations={"note": "b"},
        slots_per_worker=2,
        launcher_resources=ResourceRequirements(requests={"cpu": "1"}),
        network_policy="Default",
        active_deadline_seconds=60,
        backoff_limit=1,
    )
    assert job.metadata.uid and job.metadata.labels == {"team": "a"}
    stored = api.objects["trainjobs", "default", "a"]
    assert stored["spec"] == {
        "runtimeRef": {"apiGroup": "kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "mpi-openmpi-cpu"},
        "trainer": {
            "numNodes": 2,
            "image": "image",
            "command": ["python3", "train.py"],
            "args": ["--epochs", "3"],
            "env": [{"name": "A", "value": "1"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "resourcesPerNode": {
                "requests": {"cpu": "4", "nvidia.com/gpu": "1"},
                "limits": {"cpu": "4", "nvidia.com/gpu": "1"},
            },
            "slotsPerWorker": 2,
        },
        "launcher": {"resources": {"requests": {"cpu": "1"}}},
        "networkPolicy": {"template": "Default"},
        "activeDeadlineSeconds": 60,
        "backoffLimit": 1,
    }
    assert job.to_dict()["spec"] == stored["spec"]
    with pytest.raises(errors.AlreadyExistsError):
        create(client)


def test_a_runtime_of_the_namespace_comes_first(client: TrainingClient, api: FakeAPI) -> None:
    api.put(
        "trainingruntimes",
        "default",
        {"metadata": {"name": "mpi-openmpi-cpu"}, "spec": {"mlPolicy": {"mpiImplementation": "MPICH"}}},
    )
    create(client)
    assert api.objects["trainjobs", "default", "a"]["spec"]["runtimeRef"]["kind"] == "TrainingRuntime"
    assert [r.name for r in client.list_runtimes(framework="mpi")] == ["mpi-openmpi-cpu"]
    assert len(client.list_runtimes()) == 2


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"num_nodes": 0}, "numNodes must be between 1 and 64"),
        ({"num_nodes": 65}, "numNodes must be between 1 and 64"),
        ({"num_nodes": True}, "numNodes must be between 1 and 64"),
        ({"name": "Bad_Name"}, "lower case letters"),
        ({"name": "a" * 45}, "at most 44 characters"),
        ({"slots_per_worker": 0}, "at least 1"),
        ({"resources_per_node": {"cpu": "many"}}, "is not a quantity"),
        ({"args": "--epochs 3"}, "lists of strings"),
    ],
)
def test_invalid_values_are_not_sent(client: TrainingClient, api: FakeAPI, settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        create(client, **settings)
    assert raised.value.field and raised.value.reason == "Invalid"
    assert api.count("POST", ".*") == 0


def test_an_image_is_required(client: TrainingClient) -> None:
    with pytest.raises(ValueError, match="image"):
        client.create_mpi_job("a", "mpi-openmpi-cpu", 2, "")


def test_runtimes(client: TrainingClient, api: FakeAPI) -> None:
    with pytest.raises(RuntimeError, match="Runtime none not found in namespace default"):
        client.create_mpi_job("a", "none", 2, "image")
    api.put("clustertrainingruntimes", "", {"metadata": {"name": "torch"}, "spec": {"mlPolicy": {}}})
    with pytest.raises(RuntimeError, match="Runtime torch does not support MPI"):
        client.create_mpi_job("a", "torch", 2, "image")


def test_status(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    api.status(
        "a",
        phase="Running",
        readyWorkerCount=1,
        conditions=[{"type": "LauncherReady", "status": "True"}],
        startTime="2026-01-02T03:04:05Z",
    )
    status = client.get_job_status("a")
    assert (status.phase, status.launcher_ready, status.ready_worker_count, status.finished) == (
        "Running",
        True,
        1,
        False,
    )
    assert status.start_time.year == 2026
    with pytest.raises(errors.NotFoundError, match="TrainJob b not found in namespace default"):
        client.get_job_status("b")


def later(action: Any) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_wait(client: TrainingClient, api: FakeAPI) -> None:
    create(client)

    def finish() -> None:
        while not api.count("GET", JOBS, watch="true"):
            time.sleep(0.005)
        api.status("a", phase="Running")
        api.status("a", phase="Failed", failureReason="WorkerFailed")

    thread = later(finish)
    assert client.wait_for_job_completion("a", timeout=30).status.failure_reason == "WorkerFailed"
    thread.join()
    assert api.count("GET", JOBS, watch="true") == 1 and api.count("GET", JOBS) == 2


def test_wait_ends_with_the_time(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    api.fault("WATCH", JOBS, 410, times=1000)
    with pytest.raises(TimeoutError, match=r"has not finished within 0\.05 s"):
        client.wait_for_job_completion("a", timeout=0.05)


def test_wait_for_a_job_that_is_deleted(client: TrainingClient, api: FakeAPI) -> None:
    create(client)

    def delete() -> None:
        while not api.count("GET", JOBS, watch="true"):
            time.sleep(0.005)
        api.delete("trainjobs", "default", "a")

    thread = later(delete)
    with pytest.raises(errors.NotFoundError):
        client.wait_for_job_completion("a")
    thread.join()
    with pytest.raises(errors.NotFoundError):
        client.wait_for_job_completion("a")


def test_wait_without_permission_to_watch(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    api.fault("WATCH", JOBS, 403)
    api.status("a", phase="Succeeded")
    api.faults.insert(0, ("GET", JOBS, 403, {}, {}, False))
    assert client.wait_for_job_completion("a", polling_interval=0.01).status.phase == "Succeeded"
    api.status("a", phase="Running")
    api.fault("GET", JOBS, 403)
    with pytest.raises(TimeoutError):
        client.wait_for_job_completion("a", timeout=0.05, polling_interval=0.02)


def pod(name: str, role: str, index: int = 0) -> dict[str, Any]:
    labels = {"job-name": "a", "job-type": "trainjob", "replica-type": role, "replica-index": str(index)}
    return {"metadata": {"name": name, "labels": {f"training.kubeflow.org/{k}": v for k, v in labels.items()}}}


def pods(api: FakeAPI) -> None:
    api.put("pods", "default", pod("a-worker-0-1", "worker", 1))
    api.put("pods", "default", pod("a-worker-0-0", "worker", 0))
    api.put("pods", "default", pod("a-launcher-0-0", "launcher"))
    for name in ("a-launcher-0-0", "a-worker-0-0", "a-worker-0-1"):
        api.log(name, f"one of {name}", "trireme-result: v1 hidden", "two", end=True)


def test_logs(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    pods(api)
    assert client.get_job_logs("a", pod_type="launcher") == "one of a-launcher-0-0\ntwo\n"
    assert client.get_job_logs("a", pod_type="worker", pod_index=1) == "one of a-worker-0-1\ntwo\n"
    text = client.get_job_logs("a", tail_lines=1)
    assert text.split("\n")[::3] == [f"==> {name} <==" for name in ("a-launcher-0-0", "a-worker-0-0", "a-worker-0-1")]
    lines = list(client.get_job_logs("a", follow=True, tail_lines=None))
    assert sorted(lines) == sorted(
        f"[{name}] {line}"
        for name in ("a-launcher-0-0", "a-worker-0-0", "a-worker-0-1")
        for line in (f"one of {name}", "two")
    )
    api.fault("GET", ".*/log", 400, {"message": "ContainerCreating"})
    assert client.get_job_logs("a", pod_type="launcher") == ""
    with pytest.raises(ValueError, match="pod_type"):
        client.get_job_logs("a", pod_type="master")
    with pytest.raises(errors.NotFoundError, match="no such pod"):
        client.get_job_logs("a", pod_type="initializer")
    with pytest.raises(errors.NotFoundError):
        client.get_job_logs("b")
    with pytest.raises(errors.K8sApiException):
        api.fault("GET", ".*/log", 418)
        client.get_job_logs("a", pod_type="launcher")


def test_followed_logs_can_be_left(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    pods(api)
    api.ended_logs.clear()
    lines = client.get_job_logs("a", follow=True)
    assert next(lines).startswith("[a-")
    before = threading.active_count()
    lines.close()
    assert threading.active_count() < before + 1


def event(name: str, about: dict[str, Any], reason: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": about,
        "type": "Normal",
        "reason": reason,
        "message": "m",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "source": {"component": "operator"},
    }


def test_events(client: TrainingClient, api: FakeAPI) -> None:
    uid = create(client).metadata.uid
    api.put("events", "default", event("e1", {"kind": "TrainJob", "uid": uid, "name": "a"}, "Created"))
    api.put("events", "default", event("e2", {"kind": "Pod", "name": "a-b-worker-0-0"}, "Other"))
    api.put("events", "default", event("e3", {"kind": "Pod", "name": "a-worker-0-0"}, "Pulled"))
    events = client.stream_job_events("a")
    assert [next(events).reason, next(events).reason] == ["Created", "Pulled"]
    api.put("events", "default", event("e4", {"kind": "TrainJob", "uid": uid, "name": "a"}, "Succeeded"))
    assert next(events).reason == "Succeeded"
    api.status("a", phase="Succeeded")
    assert list(events) == []
    assert [e.reason for e in client.stream_job_events("a")] == ["Created", "Pulled", "Succeeded"]


def test_lists(client: TrainingClient, api: FakeAPI) -> None:
    create(client, "a", labels={"team": "x"})
    create(client, "b")
    api.status("b", phase="Succeeded", duration="5s")
    assert [j.metadata.name for j in client.list_jobs()] == ["a", "b"]
    assert [j.metadata.name for j in client.list_jobs(status="Pending")] == ["a"]
    assert [j.metadata.name for j in client.list_jobs(label_selector="team=x")] == ["a"]
    assert client.list_jobs(runtime="other") == []
    jobs = client.list_jobs()
    frame = jobs.to_frame()
    assert list(frame["phase"]) == ["Pending", "Succeeded"]
    assert "<td>Succeeded</td>" in jobs._repr_html_() and client.list_jobs("none")._repr_html_() == "<p>none</p>"
    assert jobs.__rich__().row_count == 2


def test_a_thousand_jobs(client: TrainingClient, api: FakeAPI) -> None:
    item = api.objects["trainjobs", "default", create(client, "j").metadata.name]
    for number in range(1000):
        api.objects["trainjobs", "default", f"j{number}"] = {
            **item,
            "metadata": {**item["metadata"], "name": f"j{number}"},
        }
    assert len(client.list_jobs().to_frame()) == 1001
    assert api.count("GET", JOBS) == 3


def test_a_python_without_image_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tests.images, "IMAGE", "")
    with pytest.raises(pytest.fail.Exception, match=r"set PYTHON to python3\.11 or python3\.13"):
        tests.test_cluster.need_image()


def test_delete(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    client.delete_job("a")
    assert not any(key[0] == "trainjobs" for key in api.objects)
    with pytest.raises(errors.NotFoundError, match="TrainJob a not found"):
        client.delete_job("a")


def test_metrics(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    pods(api)
    usage = [{"usage": {"cpu": "250m", "memory": "2Mi"}}, {"usage": {"cpu": "1", "memory": "1Ki"}}]
    for name, role, index in (("a-worker-0-1", "worker", 1), ("a-launcher-0-0", "launcher", 0)):
        api.put("podmetrics", "default", {**pod(name, role, index), "containers": usage})
    api.put("podmetrics", "default", {"metadata": {"name": "other"}, "containers": usage})
    api.log("a-launcher-0-0", '[1,0]<stdout>: trireme: {"step": 2, "of": 4, "loss": 0.5}', "trireme: {broken")
    metrics = client.get_job_metrics("a", time_range="15m")
    assert [(p.pod, p.cpu, p.memory) for p in metrics.pods] == [
        (name, 1.25, (2 << 20) + 1024) for name in ("a-launcher-0-0", "a-worker-0-1")
    ]
    assert api.count("GET", "/apis/metrics.*") == 1
    assert [row["loss"] for row in metrics.progress] == [0.5]
    assert list(metrics.to_frame()["step"]) == [2]
    assert [r[2]["sinceSeconds"] for r in api.requests if r[1].endswith("/log")] == ["900"]


def test_metrics_while_the_launcher_waits(client: TrainingClient, api: FakeAPI) -> None:
    create(client)
    pods(api)
    api.fault("GET", ".*/log", 400, {"message": "container is waiting to start: ContainerCreating"})
    api.fault("GET", "/apis/metrics.*", 404)
    metrics = client.get_job_metrics("a")
    assert metrics.pods == [] and metrics.progress == []


@pytest.mark.parametrize("text, seconds", [("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172800)])
def test_durations(text: str, seconds: int) -> None:
    assert duration_seconds(text) == seconds
    with pytest.raises(ValueError, match="is not a duration"):
        duration_seconds("1 hour")


def test_quantities() -> None:
    assert [quantity(q) for q in ("2", "500m", "1Gi", "3k")] == [2, 0.5, 1 << 30, 3000]
    with pytest.raises(ValueError):
        quantity("1 Gi")
    both = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    assert resources(both, "r") == both and resources(None, "r") is None


def test_environment(client: TrainingClient, api: FakeAPI) -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    create(client, env=[EnvVar("A", "1"), EnvVar("B", value_from=secret), {"name": "C", "value": "3"}])
    assert api.objects["trainjobs", "default", "a"]["spec"]["trainer"]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": secret},
        {"name": "C", "value": "3"},
    ]


def test_names_of_the_seeds(client: TrainingClient, api: FakeAPI) -> None:
    for kind in (client, MockTrainingClient()):
        job = create(kind, resources={"cpu": 2})
        assert job.spec.trainer.resources_per_node.limits == {"cpu": "2"}
        with pytest.raises(ValueError, match="resources: is another name of resources_per_node"):
            create(kind, "b", resources={"cpu": 2}, resources_per_node={"cpu": 2})
        kind.delete_job("a", grace_period=5)
    (path,) = [path for method, path, _ in api.requests if method == "DELETE"]
    assert path == JOBS + "/a" and api.bodies[-1]["gracePeriodSeconds"] == 5


def test_legacy_job(client: TrainingClient, api: FakeAPI) -> None:
    with pytest.warns(DeprecationWarning, match="3.0.0"):
        client.create_legacy_mpi_job("old", image="image", command=["mpirun", "true"])
    assert api.objects["mpijobs", "default", "old"]["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2


def test_mock() -> None:
    client = MockTrainingClient()
    client.register_job("a", "team", "Succeeded", logs="one\ntwo\n")
    assert client.get_job_status("a", "team").phase == "Succeeded"
    assert client.wait_for_job_completion("a", "team").metadata.name == "a"
    assert client.get_job_logs("a", "team", tail_lines=1) == "two\n"
    assert list(client.get_job_logs("a", "team", follow=True)) == ["one", "two"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        create(client, "b", labels={"x": "y"})
    with pytest.raises(errors.AlreadyExistsError):
        create(client, "b")
    with pytest.raises(ValueError):
        create(client, "c", num_nodes=0)
    assert create(client, "c", dry_run=True).metadata.name == "c"
    with pytest.raises(TimeoutError):
        client.wait_for_job_completion("b")
    assert [j.metadata.name for j in client.list_jobs()] == ["b"] and len(client.list_jobs("")) == 2
    assert len(client.list_jobs("", label_selector="x=y", runtime="mpi-openmpi-cpu", status="Pending")) == 1
    assert [e.reason for e in client.stream_job_events("b")] == ["Pending"]
    assert client.get_job_metrics("b").pods == [] and client.list_runtimes()
    client.delete_job("b")
    with pytest.raises(errors.NotFoundError):
        client.get_job("b")
    client.close()


def test_cancel_without_permission_to_watch(api: FakeAPI) -> None:
    api.put("trainjobs", "default", {"metadata": {"name": "a"}})
    api.fault("GET", JOBS, 403)

    async def main() -> None:
        async with AsyncTrainingClient(kube=api.kube()) as client:
            waiting = asyncio.create_task(client.wait_for_job_completion("a", polling_interval=5))
            while not api.count("GET", JOBS + "/a"):
                await asyncio.sleep(0.005)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < 5


def test_asynchronous_client(api: FakeAPI) -> None:
    async def main() -> None:
        async with AsyncTrainingClient(kube=api.kube()) as client:
            await client.create_mpi_job("a", "mpi-openmpi-cpu", 2, "image")
            pods(api)
            assert [j.metadata.name for j in await client.list_jobs()] == ["a"]
            assert "one of" in await client.get_job_logs("a")
            assert len([line async for line in await client.get_job_logs("a", follow=True)]) == 6
            waiting = asyncio.create_task(client.wait_for_job_completion("a"))
            while not api.count("GET", JOBS, watch="true"):
                await asyncio.sleep(0.005)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            api.put(
                "events",
                "default",
                event("e", {"uid": (await client.get_job("a")).metadata.uid, "name": "a"}, "Created"),
            )
            async for one in client.stream_job_events("a"):
                assert one.reason == "Created"
                break
            with pytest.raises(errors.NotFoundError):
                await client.get_job("b")

    before = threading.active_count()
    asyncio.run(main())
    # The threads of asyncio's pool end with the loop, those of the fake server with its connections.
    assert threading.active_count() <= before + 12

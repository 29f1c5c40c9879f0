# SPDX-License-Identifier: Apache-2.0
"""Functions on ranks: the payload, the results, and the display of jobs. Jobs on pods are in test_cluster.py."""

from __future__ import annotations

import base64
import copy
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from rich.console import Console

import trireme
from tests.conftest import RUNTIME
from tests.fakeapi import FakeAPI
from trireme import _payload, _results, display, errors
from trireme._outcomes import with_source
from trireme._payload import payload
from trireme._progress import parse
from trireme._results import Collector
from trireme.run import Client
from trireme.training import EnvVar

JOBS = "/apis/kubeflow.org/v2alpha1/namespaces/default/trainjobs"


@pytest.fixture
def client(api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("trireme.run.Kube.connect", lambda *_: api.kube())
    with Client(image="image") as client:
        yield client


def answer() -> int:
    return 42


def submitted(api: FakeAPI, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return api.objects["trainjobs", "default", name], api.objects["secrets", "default", f"{name}-run"]


def finish(api: FakeAPI, job: Any, phase: str, results: dict[int, Any], *lines: str, **status: Any) -> None:
    """Plays the launcher: its output, then the end of the job."""
    pod = f"{job.name}-launcher-0-0"
    labels = {"job-name": job.name, "job-type": "trainjob", "replica-type": "launcher"}
    meta = {"name": pod, "labels": {f"training.kubeflow.org/{key}": value for key, value in labels.items()}}
    api.put("pods", "default", {"metadata": meta})
    api.status(job.name, phase="Running", launcherPodStatus={"name": pod, "phase": "Running"})
    api.log(pod, *lines)
    for rank, result in results.items():
        api.log(pod, *signed(api, job, rank, {"outcome": "result", "host": "h"}, cloudpickle.dumps(result)))
    api.log(pod, end=True)
    api.status(job.name, phase=phase, **status)


def signed(api: FakeAPI, job: Any, rank: int, header: dict[str, Any], value: bytes = b"") -> list[str]:
    data = submitted(api, job.name)[1]["data"]
    run = json.loads(base64.b64decode(data["run.json"]))["run"]
    return [line.rstrip() for line in _results.lines(base64.b64decode(data["key"]), run, rank, header, value)]


class Shown:
    def __init__(self) -> None:
        self.shown: list[Any] = []

    def line(self, rank: int | None, line: str) -> None:
        self.shown.append((rank, line))

    def progress(self, values: dict[str, Any]) -> None:
        self.shown.append(values)

    def job(self, job: Any) -> None:
        self.shown.append(job.status.phase)

    def close(self) -> None:
        self.shown.append("closed")


# On the API.


def test_run_creates_a_job_and_its_secret(client: Client, api: FakeAPI) -> None:
    job = client.run(answer, nodes=2, slots=3, env={"A": "1"}, labels={"team": "x"}, max_seconds=60)
    stored, secret = submitted(api, job.name)
    trainer = stored["spec"]["trainer"]
    assert job.name.startswith("answer-") and repr(job) == f"<trireme.Job default/{job.name}: Pending>"
    assert (trainer["numNodes"], trainer["slotsPerWorker"], trainer["image"]) == (2, 3, "image")
    assert trainer["command"] == ["python3", "/etc/trireme/run/run.pyz"]
    assert trainer["volumes"][0]["secret"]["secretName"] == secret["metadata"]["name"]
    assert stored["metadata"]["labels"]["team"] == "x" and stored["spec"]["activeDeadlineSeconds"] == 60
    (owner,) = secret["metadata"]["ownerReferences"]
    assert owner["uid"] == stored["metadata"]["uid"] and secret["immutable"]
    # The key is only in the Secret.
    assert secret["data"]["key"] not in json.dumps(stored)


def test_nothing_is_left_behind_if_the_secret_is_refused(client: Client, api: FakeAPI) -> None:
    api.fault("POST", ".*/secrets", 403, {"message": "secrets is forbidden"})
    with pytest.raises(errors.ForbiddenError, match=r"secrets is forbidden\. .*to create and get secrets"):
        client.run(answer)
    assert not [key for key in api.objects if key[0] in ("trainjobs", "secrets")]


def test_a_quota_refuses_the_secret(client: Client, api: FakeAPI) -> None:
    api.fault("POST", ".*/secrets", 403, {"message": "exceeded quota: q, requested: count/secrets=1"})
    with pytest.raises(errors.QuotaExceededError) as raised:
        client.run(answer)
    assert "Request less" in raised.value.remedy
    assert not [key for key in api.objects if key[0] in ("trainjobs", "secrets")]


@pytest.mark.parametrize("status", [0, 504])
def test_nothing_is_left_behind_if_the_answer_is_lost(client: Client, api: FakeAPI, status: int) -> None:
    for resource in ("trainjobs", "secrets"):
        api.fault("POST", f".*/{resource}", status, lost=True)
        with pytest.raises(errors.TrainingSDKException):
            client.run(answer)
        assert not [key for key in api.objects if key[0] == "trainjobs"]
    # A job of the same name that is not of this run stays.
    client.run(answer, name="a")
    with pytest.raises(errors.AlreadyExistsError):
        client.run(answer, name="a")
    api.fault("POST", ".*/trainjobs", status)
    with pytest.raises(errors.TrainingSDKException):
        client.run(answer, name="a")
    assert ("trainjobs", "default", "a") in api.objects
    api.fault("POST", ".*/secrets", 403)
    api.fault("DELETE", ".*/trainjobs/b", 403)
    with pytest.raises(errors.ForbiddenError, match="Job b in namespace default may exist: delete it"):
        client.run(answer, name="b")
    api.fault("POST", ".*/trainjobs", status, lost=True)
    api.fault("GET", ".*/trainjobs/c", 403)
    with pytest.raises(errors.TrainingSDKException, match="Job c in namespace default may exist: delete it"):
        client.run(answer, name="c")


@pytest.mark.parametrize(
    "settings",
    [
        {"nodes": 0},
        {"nodes": 65},
        {"slots": 0},
        {"nodes": True},
        {"name": "A"},
        {"max_result_bytes": 0},
        {"max_result_bytes": (3 << 20) + 1, "nodes": 2},
    ],
)
def test_invalid_runs_are_not_sent(client: Client, api: FakeAPI, settings: Any) -> None:
    with pytest.raises(ValueError):
        client.run(answer, **settings)
    assert api.count("POST", ".*") == 0


def test_an_image_is_found(client: Client, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    client.image = None
    with pytest.raises(ValueError, match="an image is required"):
        client.run(answer)
    monkeypatch.setenv("TRIREME_IMAGE", "from-environment")
    assert client.run(answer)._job.spec.trainer.image == "from-environment"


def test_results_in_order_of_ranks(client: Client, api: FakeAPI) -> None:
    job = client.run(answer, nodes=3)
    finish(api, job, "Succeeded", {2: "c", 0: "a", 1: "b"})
    assert job.results(10) == ["a", "b", "c"]
    assert job.refresh().status.phase == "Succeeded" and "<h4>" in job._repr_html_()
    assert [j.name for j in client.jobs()] == [job.name]
    assert client.job(job.name).results(10) == ["a", "b", "c"]
    job.delete()


def test_follow(client: Client, api: FakeAPI) -> None:
    job = client.run(answer, nodes=2)
    shown = Shown()
    report = 'trireme: {"step": 1, "of": 2, "loss": 0.5}'

    def play() -> None:
        while not api.count("GET", JOBS, watch="true"):
            time.sleep(0.005)
        finish(api, job, "Succeeded", {0: 1, 1: 2}, f"[1,0]<stdout>: {report}", "[1,1]<stdout>: hello", "plain")

    thread = threading.Thread(target=play)
    thread.start()
    job.follow(shown)
    thread.join()
    assert [s for s in shown.shown if not isinstance(s, str) and s is not None] == [
        {"step": 1, "of": 2, "loss": 0.5},
        (1, "hello"),
        (None, "plain"),
    ]
    assert "Succeeded" in shown.shown and shown.shown[-1] == "closed"
    logs = api.count("GET", ".*/log")
    assert job.results(10) == [1, 2]
    # The second request, if any, is that for the lines since the first has ended.
    assert api.count("GET", ".*/log") == logs <= 2 and api.count("GET", JOBS, watch="true") == 1
    assert list(job.curve().to_frame()["loss"]) == [0.5]


def lines_shown(shown: Shown) -> list[str]:
    return [item[1] for item in shown.shown if isinstance(item, tuple)]


@pytest.mark.parametrize("clean", [False, True])
def test_follow_continues_a_log(client: Client, api: FakeAPI, monkeypatch: pytest.MonkeyPatch, clean: bool) -> None:
    monkeypatch.setattr("trireme._jobs.LOG_CHECK_SECONDS", 0.01)
    job, shown = client.run(answer), Shown()
    pod = f"{job.name}-launcher-0-0"
    api.status(job.name, phase="Running", launcherPodStatus={"name": pod, "phase": "Running"})
    for after in (3, 6, 6, 7):
        api.cut(pod, after, clean)
    api.log(pod, *(f"line {number}" for number in range(7)))

    def play() -> None:
        while len(lines_shown(shown)) < 7:
            time.sleep(0.005)
        finish(api, job, "Succeeded", {0: 1}, "line 7")

    thread = threading.Thread(target=play)
    thread.start()
    job.follow(shown)
    thread.join()
    assert lines_shown(shown) == [f"line {number}" for number in range(8)]
    assert job.results(10) == [1] and not api.cuts
    since = {query["sinceTime"] for _, path, query in api.requests if path.endswith("/log") and "sinceTime" in query}
    assert since >= {"2026-01-02T03:04:00Z", "2026-01-02T03:04:01Z"}


def test_a_log_that_cannot_be_read(client: Client, api: FakeAPI, caplog: pytest.LogCaptureFixture) -> None:
    """States are shown nevertheless, and results read the log again."""
    job, shown = client.run(answer), Shown()
    finish(api, job, "Succeeded", {0: 1}, *(f"line {number}" for number in range(3)))
    for _ in range(6):
        api.cut(f"{job.name}-launcher-0-0", 2)
    job.follow(shown)
    assert lines_shown(shown) == ["line 0", "line 1"] and "Succeeded" in shown.shown
    assert "log of pod" in caplog.text and job.results(10) == [1]


def test_curve(client: Client, api: FakeAPI) -> None:
    job = client.run(answer)
    assert job.curve() == []
    reports = [{"step": step, "of": 3, "loss": 1 / step} for step in (1, 2, 3)]
    finish(api, job, "Succeeded", {0: 1}, *("[1,0]<stdout>: trireme: " + json.dumps(r) for r in reports))
    # It was not followed, in this process or another.
    assert job.refresh().curve() == reports == client.jobs()[0].curve()
    # Following again, also a log that has lost its beginning, adds nothing.
    job.follow(Shown()).follow(Shown())
    assert job.curve() == reports
    del api.logs[f"{job.name}-launcher-0-0"][0]
    assert job.follow(Shown()).curve() == reports


def test_jobs(client: Client, api: FakeAPI) -> None:
    first, second = client.run(answer, name="a"), client.run(answer, name="b")
    api.put("trainjobs", "default", {"metadata": {"name": "other"}, "spec": {}})
    # As between the two requests of another client.
    api.delete("secrets", "default", "b-run")
    before = len(api.requests)
    jobs = client.jobs()
    assert len(api.requests) == before + 1
    assert [job.name for job in jobs] == ["a", "b"] and list(jobs.to_frame()["phase"]) == ["Pending"] * 2
    assert "<td>a</td>" in jobs._repr_html_()
    finish(api, first, "Succeeded", {0: 1})
    assert jobs[0].results(10) == [1] == client.jobs()[0].follow(Shown()).results(10)
    finish(api, second, "Succeeded", {}, "text", "trireme-result: v1 hidden")
    shown = Shown()
    jobs[1].follow(shown)
    assert lines_shown(shown) == ["text"]
    for read in (jobs[1].results, lambda: client.job("b")):
        with pytest.raises(errors.NotFoundError, match="its Secret is missing"):
            read()
    api.put("secrets", "default", {"metadata": {"name": "b-run"}})
    with pytest.raises(errors.NotFoundError, match="was not created by run"):
        client.job("b")


def test_ctrl_c_leaves_the_job(client: Client, api: FakeAPI) -> None:
    job = client.run(answer)

    class Interrupted(Shown):
        def job(self, job: Any) -> None:
            raise KeyboardInterrupt

    shown = Interrupted()
    job.follow(shown)
    assert f"Client(namespace='default').job('{job.name}').follow()" in shown.shown[0][1]
    assert shown.shown[-1] == "closed"
    assert ("trainjobs", "default", job.name) in api.objects
    assert not [t for t in threading.enumerate() if t.name.startswith("trireme")]


def test_ctrl_c_while_waiting(
    client: Client, api: FakeAPI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job, array = client.run(answer), client.map(answer, [1])

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("trireme.run.Kube.watch", interrupted)
    for call in (job.wait, job.results, array.results):
        with pytest.raises(KeyboardInterrupt):
            call()
    hint = f"Client(namespace='default').job('{job.name}').results()"
    assert [hint in text for text in caplog.messages] == [True, True, False]
    assert "the jobs continue" in caplog.messages[-1]


def test_follow_ends_if_the_job_is_deleted(client: Client, api: FakeAPI) -> None:
    job = client.run(answer)
    api.delete("trainjobs", "default", job.name)
    with pytest.raises(errors.NotFoundError):
        job.follow(Shown())


def test_exception_of_a_rank(client: Client, api: FakeAPI) -> None:
    job = client.run(answer, nodes=2)
    header = {
        "outcome": "exception",
        "type": "KeyError",
        "message": "'a'",
        "traceback": "Traceback\nKeyError: 'a'\n",
        "host": "w-1",
    }
    lines = signed(api, job, 1, header, cloudpickle.dumps(KeyError("a")))
    pods = [{"name": "w-1-r0", "node": "gpu-7"}, {"name": "w-10-r0", "node": "gpu-8"}]
    finish(
        api, job, "Failed", {0: 1}, *lines, failureReason="TrainingError", failureMessage="rank 1 failed",
        workerPodStatuses=pods[::-1],
    )  # fmt: skip
    with pytest.raises(trireme.JobFailed, match="rank 1 on w-1 raised KeyError: 'a'") as raised:
        job.results(10)
    failure = raised.value
    assert (failure.rank, failure.node, failure.reason) == (1, "gpu-7", "TrainingError")
    assert isinstance(failure.__cause__, KeyError) and failure.status.failure_message == "rank 1 failed"


def test_exception_that_cannot_be_unpickled(client: Client, api: FakeAPI) -> None:
    job = client.run(answer)
    header = {"outcome": "exception", "type": "Own", "message": "m", "traceback": "t", "host": "w"}
    finish(api, job, "Failed", {}, *signed(api, job, 0, header, b"no pickle"))
    with pytest.raises(trireme.JobFailed) as raised:
        job.results(10)
    assert raised.value.exception is None and raised.value.__cause__ is None


def test_failure_of_the_job(client: Client, api: FakeAPI) -> None:
    job = client.run(answer)
    process = {"rank": 1, "host": f"{job.name}-worker-0-1", "error": "Killed", "lastLines": ["a", "b"]}
    name = f"{job.name}-worker-0-1"
    pods = [
        {"index": index, "name": f"{name}{suffix}", "node": node, "phase": "Failed"}
        for index, suffix, node in ((10, "0-r0", "gpu-8"), (1, "-r0", "gpu-7"))
    ]
    message = "Worker 0 exceeded its memory limit. Raise the memory limit"
    finish(
        api, job, "Failed", {}, failureReason="WorkerFailed", failureMessage=message, failedProcess=process,
        workerPodStatuses=pods, timeline=[{"step": "Submitted", "time": "2026-01-02T03:04:05Z"}],
    )  # fmt: skip
    with pytest.raises(errors.JobFailedError) as raised:
        job.results(10)
    failure = raised.value
    assert (failure.reason, failure.cause, failure.rank, failure.node) == ("WorkerFailed", "Killed", 1, "gpu-7")
    assert failure.advice == failure.remedy == message and failure.last_lines == ["a", "b"]
    page = job._repr_html_()
    assert "WorkerFailed" in page and "gpu-7" in page and "Submitted" in page and "<pre>a\nb</pre>" in page


def test_results_that_are_missing(client: Client, api: FakeAPI) -> None:
    job = client.run(answer, nodes=3)
    torn = signed(api, job, 1, {"outcome": "result", "host": "h"}, os.urandom(5000))
    finish(api, job, "Succeeded", {0: 1}, *torn[1:])
    with pytest.raises(errors.ResultsUnavailableError, match=r"ranks 1, 2 .*rank 1: \d+ of \d+ lines") as raised:
        job.results(10)
    assert raised.value.reason == "ResultsMissing"


def test_map(client: Client, api: FakeAPI) -> None:
    array = client.map(answer, [1, (2,), {"a": 3}])
    assert len(array) == 3 and array[0].name.endswith("-0")
    with pytest.raises(TimeoutError, match="3 of 3 jobs"):
        api.fault("WATCH", JOBS, 410, times=50)
        array.wait(0.05)
    api.faults.clear()
    for number, job in enumerate(array):
        finish(api, job, "Succeeded", {0: number})
    assert array.results(10) == [[0], [1], [2]]
    assert list(array.to_frame()["phase"]) == ["Succeeded"] * 3 and array.wait() is array
    array.delete()
    assert not [key for key in api.objects if key[0] == "trainjobs"]


def test_an_array_does_not_wait_for_deleted_jobs(client: Client, api: FakeAPI) -> None:
    array = client.map(answer, [1, 2, 3])
    api.delete("trainjobs", "default", array[0].name)

    def play() -> None:
        while not api.count("GET", JOBS, watch="true"):
            time.sleep(0.005)
        with api.changed:
            api.delete("trainjobs", "default", array[1].name)
            api.forget()
        api.status(array[2].name, phase="Succeeded")

    thread = threading.Thread(target=play)
    thread.start()
    assert array.wait(10) is array
    thread.join()
    assert [job.status.phase for job in array] == [None, None, "Succeeded"]


def test_map_leaves_nothing_behind(client: Client, api: FakeAPI) -> None:
    def items() -> Iterator[int]:
        yield 1
        api.fault("POST", ".*/trainjobs", 403, {"message": 'forbidden: exceeded quota: "pods"'})
        yield 2

    with pytest.raises(errors.QuotaExceededError):
        client.map(answer, items())
    assert not [key for key in api.objects if key[0] == "trainjobs"]


def test_preflight(client: Client, api: FakeAPI) -> None:
    status = {"hard": {"pods": "10"}, "used": {"pods": "3"}}
    api.put("resourcequotas", "default", {"metadata": {"name": "q"}, "status": status})
    plan = client.run(
        answer, nodes=2, slots=2, resources={"cpu": "500m"}, launcher_resources={"cpu": 1}, preflight=True
    )
    assert plan.totals == {"pods": 3, "ranks": 4, "cpu": 2.0}
    assert "quota q: pods 3 of 10 used" in str(plan) and "<td>q</td>" in plan._repr_html_()
    assert not [key for key in api.objects if key[0] in ("trainjobs", "secrets")]


def test_preflight_with_the_resources_of_the_runtime(client: Client, api: FakeAPI) -> None:
    runtime = copy.deepcopy(RUNTIME)
    amounts = {
        "launcher": {"requests": {"cpu": "1"}},
        "worker": {"requests": {"cpu": 8}, "limits": {"cpu": 16, "nvidia.com/gpu": 2}},
    }
    runtime["spec"]["template"]["spec"]["replicatedJobs"] = [
        {"name": role, "template": {"spec": {"containers": [{"name": role, "resources": amount}]}}}
        for role, amount in amounts.items()
    ]
    api.put("clustertrainingruntimes", "", runtime)
    plan = client.run(answer, nodes=2, preflight=True)
    assert plan.totals == {"pods": 3, "ranks": 2, "cpu": 17, "nvidia.com/gpu": 4}
    plan = client.run(answer, nodes=2, preflight=True, resources={"cpu": 1}, launcher_resources={"cpu": 2})
    assert plan.totals == {"pods": 3, "ranks": 2, "cpu": 4}


def test_a_job_of_another_tool(client: Client, api: FakeAPI) -> None:
    api.put("trainjobs", "default", {"metadata": {"name": "a"}, "spec": {}})
    with pytest.raises(errors.NotFoundError, match="was not created by run"):
        client.job("a")


# The payload.


def test_payload_limits(tmp_path: Path) -> None:
    data = os.urandom(_payload.MAX_BYTES)
    with pytest.raises(errors.PayloadTooLargeError, match="the limit is 700 KiB"):
        payload(lambda: data, (), {}, None, 1)
    (tmp_path / "weights").write_bytes(data)
    with pytest.raises(errors.PayloadTooLargeError, match="at weights"):
        payload(answer, (), {}, tmp_path, 1)
    (tmp_path / "weights").unlink()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(_payload.MAX_UNPACKED_BYTES + 1)
    with pytest.raises(errors.PayloadTooLargeError, match="at huge"):
        payload(answer, (), {}, tmp_path, 1)
    with pytest.raises(ValueError, match="is not a folder"):
        payload(answer, (), {}, tmp_path / "none", 1)


def test_code_has_no_hidden_files(tmp_path: Path) -> None:
    for name in (".env", ".git/config", "a.py", "lib/b.py", "lib/__pycache__/b.pyc", "venv/x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    archive = zipfile.ZipFile(io.BytesIO(payload(answer, (), {}, tmp_path, 1).files["code.zip"]))
    assert archive.namelist() == ["a.py", "lib/b.py"]


def test_what_cannot_be_pickled() -> None:
    lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot be pickled.*Create connections, locks"):
        payload(lambda: lock, (), {}, None, 1)


def test_functions_of_installed_packages_travel_by_name() -> None:
    assert b"textwrap" in payload(textwrap.dedent, ("a",), {}, None, 1).files["function.pkl"]
    module = types.ModuleType("own_module")
    module.__file__ = "/somewhere/own_module.py"
    exec("def f(): return g()\ndef g(): return 7", module.__dict__)
    sys.modules["own_module"] = module
    try:
        pickle = payload(module.f, (), {}, None, 1).files["function.pkl"]
        by_name = payload(module.f, (), {}, "/somewhere", 1) if os.path.isdir("/somewhere") else None
    finally:
        del sys.modules["own_module"]
    assert by_name is None and cloudpickle.loads(pickle)[0]() == 7


def test_the_runner_is_plain_python(tmp_path: Path) -> None:
    """It must start on an interpreter that cannot run the function, and without any package."""
    packed = payload(answer, (), {}, None, 100)
    for name, content in packed.files.items():
        (tmp_path / name).write_bytes(content)
    settings = json.loads(packed.files["run.json"])
    (tmp_path / "run.json").write_text(json.dumps({**settings, "python": [3, 5]}))
    command = [sys.executable, "-I", "-S", str(tmp_path / "run.pyz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    collector = Collector(packed.key, packed.run)
    outcomes = [collector.feed(line) for line in done.stdout.splitlines()]
    assert done.returncode == 78 and outcomes[-1].kind == "python" and outcomes[-1].header["there"] == "3.5"
    assert "the function was sent by Python 3.5" in done.stderr


def test_a_line_is_one_write(tmp_path: Path) -> None:
    """Also if the image sets PYTHONUNBUFFERED, as many do."""
    packed = payload(lambda: print("a", 1), (), {}, None, 100)
    for name, content in packed.files.items():
        (tmp_path / name).write_bytes(content)
    # Packets keep what was written together.
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        command = [sys.executable, str(tmp_path / "run.pyz")]
        subprocess.run(command, stdout=writer, env={**os.environ, "PYTHONUNBUFFERED": "1"}, check=True)
        assert reader.recv(1000) == b"a 1\n"


# The results.


def feed(collector: Collector, lines: list[str]) -> None:
    for line in lines:
        collector.feed(line)


def test_only_signed_lines_are_used() -> None:
    key, run = b"k" * 32, "0123456789abcdef"
    header = {"outcome": "result"}
    good = list(_results.lines(key, run, 1, header, os.urandom(9000)))
    assert max(map(len, good)) <= 2048 and len(good) > 2
    forged = list(_results.lines(b"x" * 32, run, 1, header, b"evil"))
    other_run = list(_results.lines(key, "f" * 16, 1, header, b"evil"))
    other_rank = [line.replace(f"{run} 1 ", f"{run} 0 ") for line in good]
    other_part = [good[0].replace(f" 0/{len(good)} ", f" 1/{len(good)} "), *good[2:]]
    for wrong in (forged, other_run, other_rank):
        collector = Collector(key, run)
        feed(collector, wrong)
        assert not collector.outcomes and collector.rejected == len(wrong)
    collector = Collector(key, run)
    feed(collector, other_part)
    assert not collector.outcomes and collector.incomplete() == [(1, len(good) - 2, len(good))]
    feed(collector, ["[1,1]<stderr>: " + line for line in reversed(good)] + good)
    assert collector.outcomes[1].kind == "result" and not collector.incomplete()
    assert collector.feed("trireme-result: v1 damaged") is None and not _results.is_result("a line")


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_results, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="is larger than"):
        feed(Collector(b"k", "0" * 16), list(_results.lines(b"k", "0" * 16, 0, {"outcome": "result"}, bytes(5000))))


def test_reports(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    trireme.report(step=3, of=10, loss=numpy.float32(0.5), rows=7, bad=float("nan"))
    line = capsys.readouterr().out
    assert line == 'trireme: {"step": 3, "of": 10, "loss": 0.5, "rows": 7, "bad": "nan"}\n'
    assert parse(line) == {"step": 3, "of": 10, "loss": 0.5, "rows": 7, "bad": "nan"}
    assert parse("trireme: {broken") is None and parse("trireme: 2 workers reached") is None
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    trireme.report(step=3)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "line, want",
    {
        '{"step": "x", "of": 5}': {"of": 5},
        '{"step": NaN, "of": Infinity}': {},
        '{"step": -1, "of": 1e3}': {"of": 1000},
        '{"step": 1e400, "of": "7"}': {"of": 7},
        '{"step": true, "of": null, "loss": {"a": [1]}, "note": "b"}': {"note": "b"},
        '{"a": {"a": ' * 50_000 + "}": None,
    }.items(),
    ids=["text", "not a number", "negative", "too large", "other types", "deep"],
)
def test_reports_of_other_programs(line: str, want: Any) -> None:
    report = parse("trireme: " + line)
    assert report == want
    assert isinstance(display.progress_html(report or {}), str)
    terminal = display.Terminal(Console(file=io.StringIO(), force_terminal=True))
    terminal.progress(report or {})
    terminal.close()


def test_names_of_the_package() -> None:
    assert trireme.AsyncClient and trireme.JobFailedError
    with pytest.raises(AttributeError):
        trireme.nothing  # noqa: B018


# Ranks on this machine, under a real mpirun.


def local(ranks: int, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not on this machine")
    return Client(local=ranks)


def sum_of_ranks(factor: int) -> tuple[int, int]:
    from mpi4py import MPI

    import trireme

    trireme.report(step=1, of=1, loss=0.25)
    print("rank", MPI.COMM_WORLD.rank)
    return MPI.COMM_WORLD.rank, factor * MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)


def test_local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with local(3, monkeypatch) as client:
        shown = Shown()
        job = client.run(sum_of_ranks, 2, env={"A": "1"}).follow(shown)
        assert job.results(60) == [(0, 6), (1, 6), (2, 6)]
        assert {"step": 1, "of": 1, "loss": 0.25} in shown.shown and "rank 2" in job.logs()
        assert {(rank, f"rank {rank}") for rank in range(3)} <= {s for s in shown.shown if isinstance(s, tuple)}
        assert [shown.shown[0], *shown.shown[-2:]] == ["Running", "Succeeded", "closed"]
        assert list(job.curve().to_frame()["loss"]) == [0.25]
        assert "Succeeded" in job._repr_html_() and "Succeeded" in repr(job)
        for call, message in (
            (lambda: client.map(answer, [1]), "map needs a cluster"),
            (client.jobs, "jobs needs a cluster"),
            (lambda: client.job("a"), "job needs a cluster"),
        ):
            with pytest.raises(ValueError, match=message):
                call()
        (tmp_path / "note.txt").write_text("text")
        assert client.run(lambda: open("note.txt").read(), code=tmp_path).results(60) == ["text"] * 3  # noqa: SIM115


def test_local_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    client = local(1, monkeypatch)
    env = [EnvVar("A", "1"), {"name": "B", "value": "2"}, {"name": "C"}]
    assert client.run(lambda: [os.environ[name] for name in "ABC"], env=env).results(60) == [["1", "2", ""]]
    for secret in (EnvVar("D", value_from={}), {"name": "D", "valueFrom": {}}):
        with pytest.raises(ValueError, match="env: D has valueFrom, which needs a cluster"):
            client.run(answer, env=[secret])


def test_local_preflight(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called = tmp_path / "called"
    client = local(2, monkeypatch)
    plan = client.run(called.touch, preflight=True)
    assert plan.totals == {"ranks": 2} and "mpirun on this machine" in str(plan)
    assert "this machine" in plan._repr_html_()
    time.sleep(0.5)
    assert not called.exists()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="mpirun is not on the PATH"):
        client.run(answer, preflight=True)


def test_local_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = notebook_pages(monkeypatch)
    local(1, monkeypatch).run(lambda: print("hello")).follow(display.Notebook())
    assert "Succeeded" in pages[-1] and "[0] hello" in pages[-1]


def test_large_local_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of ranks that write at the same time are not mixed."""
    results = local(4, monkeypatch).run(lambda: os.urandom(300_000)).results(60)
    assert [len(result) for result in results] == [300_000] * 4


def raise_on_rank_1() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 1:
        raise LookupError("on one")
    MPI.COMM_WORLD.Barrier()


def test_local_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    client = local(2, monkeypatch)
    with pytest.raises(trireme.JobFailed, match=r"rank 1 on .* raised LookupError: on one") as raised:
        client.run(raise_on_rank_1).results(60)
    assert "in raise_on_rank_1" in raised.value.traceback and "_runner" not in raised.value.traceback
    with pytest.raises(trireme.JobFailed, match=r"at most 10 are sent back.* or raise max_result_bytes to 1\d\d\b"):
        client.run(lambda: bytes(100), max_result_bytes=10).results(60)
    with pytest.raises(trireme.JobFailed, match=r"and return its path$") as raised:
        client.run(lambda: bytes(4 << 20), max_result_bytes=3 << 20).results(60)
    assert "raise max_result_bytes" not in str(raised.value)
    with pytest.raises(ValueError, match="max_result_bytes: must be at most 3145728 with 2 ranks, not 4194304"):
        client.run(answer, max_result_bytes=4 << 20)
    with pytest.raises(trireme.JobFailed, match="mpirun exited with code 5"):
        client.run(lambda: os._exit(5)).results(60)
    with pytest.raises(trireme.JobFailed, match="raised SystemExit: 3"):
        client.run(lambda: sys.exit(3)).results(60)
    assert client.run(lambda: sys.exit(0)).results(60) == [None, None]
    job = client.run(lambda: time.sleep(600))
    with pytest.raises(TimeoutError):
        job.wait(0.1)
    job.delete()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="mpirun is not on the PATH"):
        client.run(answer)
    with pytest.raises(ValueError, match="at least 1"):
        Client(local=0)


# What users see.


def test_tags_of_mpirun() -> None:
    split = display.split_rank
    assert split("[1,3]<stdout>: text") == (3, "text") and split("[1,3]<stderr>:text") == (3, "text")
    assert split("[prterun-a-1@1,3]<stdout>: text") == (3, "text") and split("[3] text") == (3, "text")
    assert split("text") == (None, "text") and split("[INFO] text") == (None, "[INFO] text")


def job_of(**status: Any) -> Any:
    from trireme.training import TrainJob

    return TrainJob.from_dict({"metadata": {"name": "<b>", "namespace": "n"}, "status": status})


def test_html_is_escaped() -> None:
    evil = "<script>alert(1)</script>"
    page = display.job_html(
        job_of(
            phase="Failed",
            failureReason="TrainingError",
            failureMessage=evil,
            failedProcess={"lastLines": [evil]},
            launcherPodStatus={"name": evil, "message": evil},
        ),
        {"step": 1, "of": 2, evil: evil},
    )
    assert "<script>" not in page and "<b></h4>" not in page and page.count("&lt;script&gt;") >= 5
    assert "<progress value='1' max='2'>" in page


def test_plain_display(capsys: pytest.CaptureFixture[str]) -> None:
    shown = display.current_display()
    assert isinstance(shown, display.Plain)
    for job in (job_of(), job_of(readyWorkers="1/2", phase="Running"), job_of(phase="Running", readyWorkers="1/2")):
        shown.job(job)
    shown.job(job_of(quotaWait={"name": "q"}))
    shown.job(job_of(phase="Succeeded", duration="3s"))
    shown.job(job_of(phase="Failed", failureReason="R", failureMessage="m"))
    shown.line(None, "a")
    shown.line(2, "b")
    shown.progress({"step": 1, "of": 2, "loss": 0.123456})
    shown.close()
    assert capsys.readouterr().out.splitlines() == [
        "<b>: Pending",
        "<b>: Running, 1/2 workers are ready",
        "<b>: Pending, waiting for quota q",
        "<b>: Succeeded, after 3s",
        "<b>: Failed, R: m",
        "a",
        "[2] b",
        "step 1 of 2  loss 0.1235",
    ]


def test_terminal_display() -> None:
    output = io.StringIO()
    shown = display.Terminal(Console(file=output, force_terminal=True, width=100))
    shown.job(job_of(phase="Running"))
    shown.line(1, "[red]brackets[/red] stay")
    shown.progress({"step": 1, "of": 4, "loss": 0.5})
    shown.close()
    assert "[red]brackets[/red] stay" in output.getvalue() and "1/4" in output.getvalue()


def notebook_pages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    import IPython.display

    pages: list[str] = []
    handle = types.SimpleNamespace(update=lambda page: pages.append(page.data))
    monkeypatch.setattr(IPython.display, "display", lambda *_, **__: handle)
    return pages


def test_notebook_display(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = notebook_pages(monkeypatch)
    shown = display.Notebook()
    shown.line(0, "before the first state")
    shown.job(job_of(phase="Running"))
    shown.line(0, "<i>")
    shown.progress({"step": 1, "of": 2})
    shown.close()
    assert "&lt;i&gt;" in pages[-1] and "<progress" in pages[-1] and len(pages) == 2


def test_source_of_the_caller() -> None:
    text = f'Traceback\n  File "{__file__}", line 1, in f\n  File "/none.py", line 2, in g\nKeyError: 1\n'
    assert with_source(text).splitlines()[2] == "    # SPDX-License-Identifier: Apache-2.0"
    complete = '  File "a", line 1, in f\n    known\n'
    assert with_source(complete) == complete

# SPDX-License-Identifier: Apache-2.0
"""Interactive allocations: the launcher's program runs here, under the mpirun of this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import trireme
from tests.conftest import RUNTIME
from tests.fakeapi import FakeAPI
from tests.test_run import Shown, local
from trireme import _allocation, _launcher, _payload, _results, errors
from trireme._allocation import Ranks, mpirun_of, split_frame
from trireme.run import Client

FOLDER = "/etc/trireme/run"
WAIT = 60


class Launcher:
    """Plays operator and launcher of an allocation: it starts the command of the job here."""

    def __init__(self, api: FakeAPI, folder: Path) -> None:
        self.api = api
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "hostfile").write_text(f"{socket.gethostname()} slots=8\n")
        self.environment = {
            "TRIREME_HOSTFILE": str(folder / "hostfile"),
            "TMPDIR": str(folder),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_mpi_yield_when_idle": "1",
        }
        api.environment = self.environment
        api.commands = lambda command: [word.replace(FOLDER, str(folder)) for word in command]
        self.thread = threading.Thread(target=self._start, daemon=True)
        self.thread.start()

    def _start(self) -> None:
        with self.api.changed:
            self.api.changed.wait_for(lambda: self._secrets() or self.api.closing, WAIT)
            found = self._secrets()
        for secret in found:
            for name, content in secret["data"].items():
                path = self.folder / name
                path.write_bytes(base64.b64decode(content))
                path.chmod(0o755)
            self.name = secret["metadata"]["ownerReferences"][0]["name"]
            command = self.api.objects["trainjobs", "default", self.name]["spec"]["trainer"]["command"]
            self.process = subprocess.Popen(
                [word.replace(FOLDER, str(self.folder)) for word in command],
                env={**os.environ, **self.environment},
                stdout=subprocess.PIPE,
            )
            self.api.status(self.name, phase="Running", launcherPodStatus={"name": "launcher-0", "phase": "Running"})

    def _secrets(self) -> list[dict[str, Any]]:
        return [item for (plural, _, _), item in self.api.objects.items() if plural == "secrets"]

    def stop(self) -> None:
        self.thread.join()
        if self.process:
            self.process.terminate()
            self.process.communicate()


@pytest.fixture
def launcher(api: FakeAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.setattr("trireme.run.Kube.connect", lambda *_: api.kube())
    monkeypatch.setattr(_allocation, "FAILURE_SECONDS", 0.1)
    runtime = json.loads(json.dumps(RUNTIME))
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["containers"] = [{"name": "launcher", "command": ["mpirun", "--oversubscribe"]}]
    api.put("clustertrainingruntimes", "", runtime)
    playing = Launcher(api, tmp_path)
    yield playing
    with api.changed:
        api.closing = True
        api.changed.notify_all()
    playing.stop()


@pytest.fixture
def client(launcher: Launcher) -> Iterator[Client]:
    with Client(image="image") as client:
        yield client


def hello(name: str) -> tuple[int, str]:
    from mpi4py import MPI

    import trireme

    trireme.report(step=1, of=2)
    print("hello", name)
    return MPI.COMM_WORLD.rank, name


def fail_on_rank_1() -> None:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 1:
        raise LookupError("on one")
    MPI.COMM_WORLD.Barrier()


def test_calls(client: Client, api: FakeAPI, launcher: Launcher, tmp_path: Path) -> None:
    shown = Shown()
    with client.allocate(nodes=2, output=shown, labels={"team": "x"}) as ranks:
        assert len(ranks) == 2 and ranks.status.phase == "Running" and f"{ranks.name}: 2 ranks" in repr(ranks)
        assert ranks.name in ranks._repr_html_() and ranks.namespace == "default"
        assert ranks.run(hello, "a") == [(0, "a"), (1, "a")]
        lines = [entry[1].strip() for entry in shown.shown if isinstance(entry, tuple)]
        assert lines.count("hello a") == 2 and {"step": 1, "of": 2} in shown.shown
        assert not any("trireme-result" in line for line in lines)
        # The call after a failed one starts again from the beginning.
        with pytest.raises(trireme.JobFailed, match=r"rank 1 on .* raised LookupError: on one") as raised:
            ranks.run(fail_on_rank_1)
        assert raised.value.rank == 1 and "in fail_on_rank_1" in raised.value.traceback
        assert isinstance(raised.value.exception, LookupError)
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / "note.txt").write_text("text")
        assert ranks.run(lambda: open("note.txt").read(), code=tmp_path / "code") == ["text"] * 2  # noqa: SIM115
        large = os.urandom(2 << 20)  # More than a Secret can have.
        assert ranks.run(lambda: len(large)) == [2 << 20] * 2
    stored = [key for key in api.objects if key[0] == "trainjobs"]
    assert not stored


def test_failed_calls(client: Client) -> None:
    with client.allocate(nodes=2, output=Shown()) as ranks:
        with pytest.raises(trireme.JobFailed, match="mpirun exited with code 5") as raised:
            ranks.run(lambda: print("the end") or os._exit(5))  # type: ignore[func-returns-value]
        assert raised.value.reason == "TrainingError"
        with pytest.raises(trireme.JobFailed, match="out of memory") as raised:
            ranks.run(lambda: os.kill(os.getpid(), 9))
        assert raised.value.reason == "WorkerFailed" and "memory limit" in raised.value.advice
        with pytest.raises(ValueError, match="max_result_bytes: must be at most 3145728 with 2 ranks"):
            ranks.run(hello, "a", max_result_bytes=4 << 20)
        with pytest.raises(ValueError, match="cannot be pickled"):
            ranks.run(len, threading.Lock())
        with pytest.raises(errors.PayloadTooLargeError, match="the limit is 32768 KiB"):
            ranks.run(len, bytes(33 << 20))


class Interrupting(Shown):
    """Plays a user who presses Ctrl-C when the function has begun."""

    def line(self, rank: int | None, line: str) -> None:
        super().line(rank, line)
        if "begun" in line:
            raise KeyboardInterrupt


def test_interrupted_call(client: Client, launcher: Launcher) -> None:
    def wait_forever(pid_file: str) -> None:
        import time

        Path(pid_file).write_text(str(os.getpid()))
        print("begun", flush=True)
        time.sleep(1000)

    ranks = client.allocate(output=Interrupting())
    pid_file = launcher.folder / "pid"
    with pytest.raises(KeyboardInterrupt):
        ranks.run(wait_forever, str(pid_file))
    # The allocation continues, and the ranks of the first call end.
    assert ranks.run(hello, "again") == [(0, "again")]
    deadline = time.monotonic() + WAIT
    while Path(f"/proc/{pid_file.read_text()}").exists():
        # mpirun may exit before its rank does.
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ranks.close()


def test_end_with_an_exception(client: Client, api: FakeAPI) -> None:
    with pytest.raises(ZeroDivisionError), client.allocate(output=Shown()):
        raise ZeroDivisionError
    assert not [key for key in api.objects if key[0] == "trainjobs"]
    # If the job cannot be deleted, the exception of the block is the one to see.
    ranks = Ranks(client, client._jobs.model.from_dict({"metadata": {"name": "a", "namespace": "default"}}), None)  # type: ignore[arg-type]
    api.put("trainjobs", "default", {"metadata": {"name": "a"}})
    api.fault("DELETE", ".*/a", 403, {"message": "refused"}, times=2)
    with pytest.raises(ZeroDivisionError), ranks:
        raise ZeroDivisionError
    with pytest.raises(errors.ForbiddenError, match="refused"), ranks:
        pass


def test_idle_allocation_ends(client: Client, api: FakeAPI, launcher: Launcher) -> None:
    ranks = client.allocate(max_idle_seconds=1, output=Shown())
    job = api.objects["trainjobs", "default", ranks.name]
    assert job["spec"]["ttlSecondsAfterFinished"] == 300
    assert launcher.process and launcher.process.wait(WAIT) == 0
    # The operator has not seen it yet.
    with pytest.raises(errors.ConnectionFailedError, match="does not wait for calls"):
        ranks.run(hello, "a")
    api.status(ranks.name, phase="Succeeded")
    with pytest.raises(errors.AllocationEndedError, match="was not used for some time") as raised:
        ranks.run(hello, "a")
    assert "max_idle_seconds" in raised.value.remedy
    ranks.close()
    with pytest.raises(errors.AllocationEndedError, match="was deleted"):
        ranks.run(hello, "a")
    ranks.close()


def test_failed_allocation(client: Client, api: FakeAPI, launcher: Launcher) -> None:
    with client.allocate(output=Shown()) as ranks:
        status = {"failureReason": "WorkerFailed", "failureMessage": "worker 0 ran out of memory"}
        threading.Timer(0.2, lambda: api.status(ranks.name, phase="Failed", **status)).start()
        with pytest.raises(trireme.JobFailed, match="worker 0 ran out of memory") as raised:
            for _ in range(100):
                with contextlib.suppress(errors.ConnectionFailedError):
                    ranks.run(hello, "a")
        assert raised.value.reason == "WorkerFailed"


def test_pods_that_do_not_start(client: Client, api: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Launcher, "_secrets", lambda _: [])
    with pytest.raises(errors.WaitTimeoutError):
        client.allocate(timeout=0.2, output=Shown())
    assert not [key for key in api.objects if key[0] == "trainjobs"]

    class Fails(Shown):
        def job(self, job: Any) -> None:
            if job.status.phase != "Failed":
                api.status(job.metadata.name, phase="Failed", failureReason="ImagePull", failureMessage="no image")

    with pytest.raises(trireme.JobFailed, match="no image"):
        client.allocate(output=Fails())
    assert not [key for key in api.objects if key[0] == "trainjobs"]


def test_permission(client: Client, api: FakeAPI, launcher: Launcher) -> None:
    api.allowed = False
    with pytest.raises(errors.ForbiddenError, match="no permission to create pods/exec in namespace default") as raised:
        client.allocate()
    assert "pods/exec" in raised.value.remedy and not api.count("POST", ".*/trainjobs")
    api.allowed = True
    with client.allocate(output=Shown()) as ranks:
        api.fault("GET", ".*/exec", 403, {"message": "exec is refused"})
        with pytest.raises(errors.ForbiddenError, match="exec is refused"):
            ranks.run(hello, "a")
        api.fault("GET", ".*/exec", 0)
        with pytest.raises(errors.ConnectionFailedError):
            ranks.run(hello, "a")


def test_only_signed_results_are_unpickled(client: Client, tmp_path: Path) -> None:
    """Neither with another key nor from another call."""
    pickle = cloudpickle.dumps(None)
    with client.allocate(output=Shown()) as ranks:
        lines = [
            line
            for key, call in ((secrets.token_bytes(32), "0" * 16), (ranks._run.key, "0" * 16))
            for line in _results.lines(key, call, 0, {"outcome": "result", "host": "h"}, pickle)
        ]
        assert ranks.run(lambda: print("".join(lines)) or 3) == [3]  # type: ignore[func-returns-value]


def test_calls_are_sent_to_workers(client: Client, launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the ssh of the launcher, which is the agent."""
    with open(launcher.folder / "hostfile", "a") as file:
        file.write("# a comment\nworker-0.default:2 slots=2\n\nworker-1 slots=2\n")
    (launcher.folder / "bin").mkdir()
    ssh = launcher.folder / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\ncd {launcher.folder}\necho "$2" >$1.command\ncat >$1.call\n[ ! -e broken ]\n')
    ssh.chmod(0o755)
    launcher.environment["PATH"] = f"{ssh.parent}:{os.environ['PATH']}"
    with client.allocate(output=Shown()) as ranks:
        assert ranks.run(hello, "a") == [(0, "a")]
        for worker in ("worker-0.default", "worker-1"):
            assert (launcher.folder / f"{worker}.call").read_bytes()[:2] == b"PK"
            assert "umask 077; cat >/tmp/trireme-call-" in (launcher.folder / f"{worker}.command").read_text()
        (launcher.folder / "broken").touch()
        with pytest.raises(trireme.JobFailed, match=r"cannot send the call to worker worker-0\.default: exit code 1"):
            ranks.run(hello, "a")


@pytest.mark.parametrize(
    ("launcher", "want"),
    {
        "mpirun with flags": (["mpirun", "--map-by", "slot"], (["mpirun"], ["--map-by", "slot", "-np", "4"])),
        "its own number of ranks": (["mpirun", "-n", "2"], (["mpirun"], ["-n", "2"])),
        "a wrapper": (["nice", "-n", "5", "/opt/mpirun"], (["nice", "-n", "5", "/opt/mpirun"], ["-np", "4"])),
        "no command": ([], (["mpirun"], ["-np", "4"])),
        "a wrapper without mpirun": (["entry"], (["entry", "mpirun"], ["-np", "4"])),
    }.values(),
)  # fmt: skip
def test_mpirun_of(launcher: list[str], want: tuple[list[str], list[str]]) -> None:
    assert mpirun_of(launcher, 4) == want


def relay(command: list[str], answer: bool) -> list[bytes]:
    """Returns the kinds of the frames that a client gets while a command runs. It answers each of them, or none."""
    here, there = socket.socketpair()
    kinds: list[bytes] = []

    def read() -> None:
        buffer = b""
        # The other end may be closed before all was read.
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 16):
                buffer += data
                while frame := split_frame(buffer):
                    kinds.append(frame[0])
                    buffer = frame[2]
                    if answer:
                        here.send(b"h")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        _launcher._run(there, command)
    finally:
        there.close()
        reader.join()
        here.close()
    return kinds


def test_heartbeats(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_launcher, "HEARTBEAT_SECONDS", 0.01)
    go = tmp_path / "go"
    monkeypatch.setattr(_launcher, "_hear", lambda connection: (connection.recv(1), go.touch()))
    # The command ends once an answer has come.
    kinds = relay(["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.01; done; echo end"], answer=True)
    assert b"h" in kinds and kinds.count(b"o") == 1
    monkeypatch.setattr(_launcher, "LOST_SECONDS", 0.1)
    with pytest.raises(_launcher.ClientLost):
        relay(["sleep", "1000"], answer=False)


def test_noise_and_results_are_not_in_the_log(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    here, there = socket.socketpair()
    noise = b"[a:1] plm:rsh: Warning: setpgid(2,2) failed in parent with errno=Permission denied(13)\n"
    with here, there:
        assert _launcher._forward(there, noise + b"one\ntrireme-result: x\ntw", is_last=False) == b"tw"
        assert _launcher._forward(there, b"two", is_last=True) == b""
        frames = here.recv(1000)
        kind, data, frames = split_frame(frames) or (b"", b"", b"")
        assert (kind, data) == (b"o", b"one\ntrireme-result: x\n") and split_frame(frames) == (b"o", b"two\n", b"")
    assert capfdbinary.readouterr().out == b"one\ntwo\n"


def test_frames() -> None:
    frame = _launcher.FRAME.pack(b"o", 3) + b"abc"
    for size in range(len(frame)):
        assert split_frame(frame[:size]) is None
    assert split_frame(frame + b"x") == (b"o", b"abc", b"x")


def test_local(monkeypatch: pytest.MonkeyPatch) -> None:
    with local(2, monkeypatch).allocate() as ranks:
        assert len(ranks) == 2
        assert ranks.run(hello, "a") == [(0, "a"), (1, "a")]


@pytest.mark.parametrize("setting", ["nodes", "slots", "max_idle_seconds"])
def test_wrong_input(client: Client, api: FakeAPI, setting: str) -> None:
    with pytest.raises(errors.ValidationError, match=f"{setting}: must be at least 1, not 0"):
        client.allocate(**{setting: 0})
    assert not api.requests


def test_payload_of_an_allocation() -> None:
    packed = _payload.allocation(["mpirun"], 5)
    assert set(packed.files) == {"run.pyz", "run.json", "key", "mpirun"} and packed.files["mpirun"][:2] == b"#!"

# SPDX-License-Identifier: Apache-2.0
"""An interactive allocation: pods that wait for calls, and run each with an mpirun of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import posixpath
import struct
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trireme import _launcher, _payload, display, errors
from trireme._exec import Exec
from trireme._models import TrainJob
from trireme._outcomes import Results, rank_failure, result_limits
from trireme._results import Collector, is_result
from trireme.job import Run
from trireme.run import FOLDER

if TYPE_CHECKING:
    from trireme.run import Client

log = logging.getLogger("trireme")

# Starters of MPI and their flags for the number of processes, as Trireme knows them.
STARTERS = ("mpirun", "mpiexec", "mpiexec.hydra", "horovodrun")
WORLD_SIZE_FLAGS = {"-np", "-n", "--np", "--n"}
# A failed pod is in the status of its job some seconds after mpirun has noticed it.
FAILURE_SECONDS = 5.0
# mpirun's exit code for a rank that was killed by signal 9, which programs do not send to themselves.
KILLED = 128 + 9


def mpirun_of(launcher: list[str], ranks: int) -> tuple[list[str], list[str]]:
    """Returns mpirun, with what is in front of it, and its flags, from the launcher's command of the runtime."""
    at = next((i for i, word in enumerate(launcher) if posixpath.basename(word) in STARTERS), len(launcher))
    command, flags = launcher[: at + 1], launcher[at + 1 :]
    if at == len(launcher):
        command = [*command, "mpirun"]
    return command, flags if WORLD_SIZE_FLAGS & set(flags) else [*flags, "-np", str(ranks)]


class Ranks:
    """Ranks of an allocation, which wait for calls: `with client.allocate(nodes=4) as ranks: ranks.run(f)`.

    The allocation ends with the block, with `close()`, or after a time without calls.
    """

    def __init__(self, client: Client, job: TrainJob, run: Run, output: display.Display | None = None) -> None:
        self._client = client
        self._job = job
        self._run = run
        self._output = output
        # The launcher runs one call at a time.
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The name of the TrainJob."""
        return self._job.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace of the TrainJob."""
        return self._job.metadata.namespace

    @property
    def status(self) -> Any:
        """The status of the TrainJob when it was last read."""
        return self._job.status

    def __len__(self) -> int:
        return self._run.ranks

    def wait(self, timeout: float | None) -> Ranks:
        """Waits until all pods run."""
        shown = self._output or display.current_display()
        try:
            for state in self._client._jobs.changes(self.name, self.namespace, timeout):
                self._job = state
                shown.job(state)
                if state.status.finished:
                    raise self._ended()
                launcher = state.status.launcher_pod_status
                if state.status.phase == "Running" and launcher and launcher.phase == "Running":
                    break
        finally:
            shown.close()
        return self

    def run(
        self,
        func: Callable[..., Any],
        /,
        *args: Any,
        code: str | os.PathLike[str] | None = None,
        max_result_bytes: int | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Calls `func(*args, **kwargs)` on every rank, and returns the results in the order of the ranks.

        It shows progress and output. Function, arguments and `code`, a folder that becomes the working directory,
        have at most 32 MiB. Raises JobFailed if a rank raises an exception: the allocation continues. Ctrl-C ends the
        call, and the allocation continues.
        """
        limit, most = result_limits(max_result_bytes, len(self))
        call, archive = _payload.call(func, args, kwargs, code, limit, most)
        collector = Collector(self._run.key, call)
        shown = self._output or display.current_display()
        lines: list[str] = []
        with self._lock:
            try:
                # A line for each call would say nothing new.
                if not isinstance(shown, display.Plain):
                    shown.job(self._job)
                end = self._call(archive, collector, shown, lines)
            finally:
                shown.close()
        outcomes = Results(collector, self.name)
        if outcome := outcomes.failure():
            image = self._job.spec.trainer.image if self._job.spec.trainer else None
            raise rank_failure(outcome, self.name, image or "", self._job.status)
        if end["code"]:
            raise self._failure(end, lines)
        return outcomes.values(len(self))

    def _call(self, archive: bytes, collector: Collector, shown: display.Display, lines: list[str]) -> dict[str, Any]:
        try:
            for kind, data in self._frames(archive):
                if kind == _launcher.END:
                    end: dict[str, Any] = json.loads(data)
                    return end
                for line in data.decode(errors="replace").splitlines():
                    self._show(line, collector, shown, lines)
        except errors.ConnectionFailedError as error:
            raise self._lost(error) from error
        raise AssertionError("frames end with an exception")

    def _frames(self, archive: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Sends a call, and yields what the launcher sends. It answers the heartbeats."""
        command = ["python3", f"{FOLDER}/run.pyz", "call"]
        with Exec(
            self._client._kube, self.namespace, self._pod(), "launcher", command, _launcher.LOST_SECONDS
        ) as stream:
            stream.write(_launcher.LENGTH.pack(len(archive)) + archive)
            buffer = b""
            while True:
                while (frame := split_frame(buffer)) is None:
                    buffer += stream.read()
                kind, data, buffer = frame
                if kind == _launcher.HEARTBEAT:
                    stream.write(kind)
                else:
                    yield kind, data

    def _pod(self) -> str:
        """Returns the launcher's pod, if the allocation waits for calls."""
        self._refresh()
        if self._job.status.finished:
            raise self._ended()
        launcher = self._job.status.launcher_pod_status
        if not launcher or not launcher.name:
            raise errors.AllocationEndedError(f"allocation {self.name} has no launcher any more")
        return str(launcher.name)

    def _refresh(self) -> None:
        try:
            self._job = self._client._jobs.get(self.name, self.namespace)
        except errors.NotFoundError as error:
            raise errors.AllocationEndedError(f"allocation {self.name} was deleted") from error

    @staticmethod
    def _show(line: str, collector: Collector, shown: display.Display, lines: list[str]) -> None:
        if is_result(line):
            collector.feed(line)
        elif report := display.report_of(line):
            shown.progress(report)
        else:
            rank, text = display.split_rank(line)
            lines.append(text)
            del lines[:-5]
            shown.line(rank, text)

    def _await_failure(self) -> None:
        """Waits some time for the job to finish: the cause of a failed call may be a failed pod."""
        with contextlib.suppress(errors.WaitTimeoutError, errors.NotFoundError):
            self._job = self._client._jobs.wait(self.name, self.namespace, FAILURE_SECONDS)

    def _lost(self, error: errors.ConnectionFailedError) -> errors.TrainingSDKException:
        self._await_failure()
        self._refresh()
        if self._job.status.finished:
            return self._ended()
        message = f"allocation {self.name}: the call was interrupted: {error.message}"
        return errors.ConnectionFailedError(message, remedy="The allocation continues: call run() again")

    def _ended(self) -> errors.TrainingSDKException:
        if self._job.status.phase == "Failed":
            return errors.job_failure(errors.JobFailed, self.name, self._job.status)
        return errors.AllocationEndedError(
            f"allocation {self.name} has ended, because it was not used for some time",
            remedy="Allocate again, with a larger max_idle_seconds",
        )

    def _failure(self, end: dict[str, Any], lines: list[str]) -> errors.JobFailed:
        """Returns the exception for a call that failed without an exception of the function."""
        self._await_failure()
        if self._job.status.phase == "Failed":
            failed = errors.job_failure(errors.JobFailed, self.name, self._job.status)
            assert isinstance(failed, errors.JobFailed)
            return failed
        reason, remedy = "TrainingError", "The last lines of the output may say why"
        cause = end.get("error") or f"mpirun exited with code {end['code']}"
        if end["code"] == KILLED:
            reason, cause = "WorkerFailed", "a rank was killed by signal 9"
            remedy = "Most likely out of memory: allocate with a higher memory limit, or use less memory per rank"
        return errors.JobFailed(
            f"allocation {self.name}: {cause}. {remedy}",
            status=self._job.status,
            reason=reason,
            cause=cause,
            remedy=remedy,
            last_lines=lines,
        )

    def close(self) -> None:
        """Ends the allocation: deletes the job, its pods and its Secret."""
        with contextlib.suppress(errors.NotFoundError):
            self._client._jobs.delete(self.name, self.namespace)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except errors.TrainingSDKException as error:
            if kind is None:
                raise
            # The exception of the block is more important.
            log.warning("cannot delete job %s in namespace %s: %s", self.name, self.namespace, error)

    def _repr_html_(self) -> str:
        return display.job_html(self._job)

    def __repr__(self) -> str:
        return f"<trireme.Ranks {self.namespace}/{self.name}: {len(self)} ranks>"


def split_frame(buffer: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Returns kind and content of the first frame, and what follows it, or None if it is not complete."""
    with contextlib.suppress(struct.error):
        kind, size = _launcher.FRAME.unpack_from(buffer)
        end = _launcher.FRAME.size + size
        if len(buffer) >= end:
            return kind, buffer[_launcher.FRAME.size : end], buffer[end:]
    return None


class LocalRanks:
    """Ranks of this machine. Each call has an mpirun of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __len__(self) -> int:
        return self._client.local or 0

    def run(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
        """Calls `func(*args, **kwargs)` on every rank, and returns the results in the order of the ranks."""
        results: list[Any] = self._client.run(func, *args, **kwargs).follow().results()
        return results

    def close(self) -> None:
        """Does nothing: there is no pod to delete."""

    def __enter__(self) -> LocalRanks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

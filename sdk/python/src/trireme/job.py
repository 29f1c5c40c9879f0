# SPDX-License-Identifier: Apache-2.0
"""Jobs that run a function: their progress, logs and results."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trireme import display, errors
from trireme._frames import ResourceFrames
from trireme._jobs import log_lines, pod_path
from trireme._kube import JSON, Stream
from trireme._models import TrainJob
from trireme._outcomes import Curve, Results, rank_failure
from trireme._results import Collector, is_result
from trireme.training.client import job_row

if TYPE_CHECKING:
    from trireme.run import Client

log = logging.getLogger("trireme")

LABEL_ARRAY = "training.kubeflow.org/array"


@dataclass(frozen=True)
class Run:
    """What is needed to read the results of a run. It is in the Secret of the run."""

    id: str
    key: bytes
    ranks: int


class Job:
    """A function that runs, or ran, on the ranks of a TrainJob."""

    def __init__(self, client: Client, job: TrainJob, run: Run | None = None) -> None:
        self._client = client
        self._job = job
        self._run_or_none = run
        self._collector_or_none: Collector | None = None
        self._progress: list[dict[str, Any]] = []
        self._log_read = False

    @property
    def _run(self) -> Run:
        if self._run_or_none is None:
            self._run_or_none = self._client._read_run(self.name)
        return self._run_or_none

    @property
    def _collector(self) -> Collector:
        if self._collector_or_none is None:
            self._collector_or_none = Collector(self._run.key, self._run.id)
        return self._collector_or_none

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
        """The status when it was last read: `refresh()` reads it."""
        return self._job.status

    def refresh(self) -> Job:
        """Reads the job."""
        self._job = self._client._jobs.get(self.name, self.namespace)
        return self

    def wait(self, timeout: float | None = None) -> Job:
        """Waits until the job has finished, whether it succeeded or failed. Ctrl-C stops waiting."""
        if not self._job.status.finished:
            try:
                self._job = self._client._jobs.wait(self.name, self.namespace, timeout)
            except KeyboardInterrupt:
                log.warning("Stopped waiting; %s", self._hint("results"))
                raise
        return self

    def _hint(self, method: str) -> str:
        """Returns how to come back to a job that continues."""
        job = f"Client(namespace={self.namespace!r}).job({self.name!r})"
        return f"job {self.name} continues. To return: {job}.{method}(). To delete it: {job}.delete()"

    def follow(self, output: display.Display | None = None) -> Job:
        """Shows progress and output until the job has finished.

        It uses one watch and one stream of the launcher's log. Ctrl-C stops following; the job continues.
        """
        shown = output or display.current_display()
        try:
            self._follow(shown)
        except KeyboardInterrupt:
            shown.line(None, f"Stopped following; {self._hint('follow')}")
        finally:
            shown.close()
        return self

    def _follow(self, shown: display.Display) -> None:
        if self._run_or_none is None:
            # Without the key, the output is shown nevertheless. results() raises the error.
            with contextlib.suppress(errors.K8sApiException):
                self._run_or_none = self._client._read_run(self.name)
        reports: list[dict[str, Any]] = []
        lines: queue.Queue[str | TrainJob | BaseException | None] = queue.Queue(maxsize=10_000)
        watching = _Watch(self, lines)
        try:
            watching.start()
            while (item := lines.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                if isinstance(item, TrainJob):
                    self._job = item
                    shown.job(item)
                else:
                    self._read_line(item, reports, shown)
        finally:
            watching.stop()
        self._log_read = watching.complete

    def _read_line(self, line: str, reports: list[dict[str, Any]], shown: display.Display | None = None) -> None:
        if is_result(line):
            if self._run_or_none:
                self._collector.feed(line)
        elif report := display.report_of(line):
            reports.append(report)
            # A log that is read again may have lost its beginning.
            if len(reports) >= len(self._progress):
                self._progress = reports
            if shown:
                shown.progress(report)
        elif shown:
            shown.line(*display.split_rank(line))

    def results(self, timeout: float | None = None) -> list[Any]:
        """Waits for the job, and returns what the function returned, in the order of the ranks.

        Raises JobFailed if a rank raised an exception or the job failed, and ResultsUnavailableError
        if the launcher's log does not have all results any more.
        """
        collector = self._collector
        self.wait(timeout)
        if not self._log_read or len(collector.outcomes) < self._run.ranks:
            self._read_log()
        results = Results(collector, self.name)
        outcome = results.failure()
        if outcome:
            image = self._job.spec.trainer.image if self._job.spec.trainer else None
            raise rank_failure(outcome, self.name, image or "", self._job.status)
        if self._job.status.phase == "Failed":
            raise errors.job_failure(errors.JobFailed, self.name, self._job.status)
        return results.values(self._run.ranks)

    def _read_log(self) -> None:
        finished, reports = self._job.status.finished, list[dict[str, Any]]()
        for pod in self._client._jobs.pods(self.name, self.namespace, "launcher"):
            path = pod_path(self.namespace, pod["metadata"]["name"], "log")
            try:
                for line in log_lines(self._client._kube, path):
                    self._read_line(line, reports)
            except errors.K8sApiException as error:
                log.debug("log of %s: %s", pod["metadata"]["name"], error)
        self._log_read = finished

    def logs(self, tail_lines: int | None = None) -> str:
        """Returns the launcher's log, in which mpirun merges the output of all ranks."""
        texts, _ = self._client._jobs.logs(self.name, self.namespace, "launcher", None, tail_lines=tail_lines)
        return "".join(texts.values())

    def curve(self) -> Curve:
        """Returns what the function has reported: `job.curve().to_frame()`.

        Unless `follow` or `results` has read all of the launcher's log, it reads the log.
        """
        if not self._log_read:
            self._read_log()
        return Curve(self._progress)

    def delete(self) -> None:
        """Deletes the job, its pods and its Secret."""
        self._client._jobs.delete(self.name, self.namespace)

    def _repr_html_(self) -> str:
        return display.job_html(self._job, self._progress[-1] if self._progress else None)

    def __repr__(self) -> str:
        return f"<trireme.Job {self.namespace}/{self.name}: {self._job.status.phase or 'Pending'}>"


class _Watch:
    """Two threads that put the states of a job and the lines of its launcher into a queue."""

    def __init__(self, job: Job, lines: queue.Queue[Any]) -> None:
        self._job = job
        self._lines = lines
        self._streams: list[Stream] = []
        self._stopped = threading.Event()
        self._log_threads: list[threading.Thread] = []
        # Of each pod that is followed: set when its log cannot become longer.
        self._ended: dict[str, threading.Event] = {}
        self._failed = False
        self._thread = threading.Thread(target=self._watch, name="trireme-watch", daemon=True)
        self.complete = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends both threads, and waits for them."""
        self._stopped.set()
        self._end_logs()
        for stream in list(self._streams):
            stream.shutdown()
        self._thread.join()
        for thread in self._log_threads:
            thread.join()

    def _put(self, item: Any) -> None:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Full):
                return self._lines.put(item, timeout=0.2)

    def _opened(self, stream: Stream) -> None:
        self._streams.append(stream)
        if self._stopped.is_set():
            stream.shutdown()

    def _end_logs(self, running: str | None = None) -> None:
        for pod, ended in list(self._ended.items()):
            if pod != running:
                ended.set()

    def _watch(self) -> None:
        try:
            for state in self._job._client._jobs.changes(self._job.name, self._job.namespace, opened=self._opened):
                self._put(state)
                pod = state.status.launcher_pod_status
                if pod and pod.name and pod.name not in self._ended and pod.phase in ("Running", "Succeeded", "Failed"):
                    self._follow_log(pod.name)
                is_running = pod and pod.phase == "Running" and not state.status.finished
                self._end_logs(pod.name if is_running and pod else None)
                if state.status.finished or self._stopped.is_set():
                    break
            # The log ends with its container: all of it comes before the end.
            self._end_logs()
            for thread in self._log_threads:
                thread.join()
            self.complete = not self._stopped.is_set() and not self._failed
            self._put(None)
        except BaseException as error:
            self._put(error)

    def _follow_log(self, pod: str) -> None:
        self._ended[pod] = threading.Event()
        thread = threading.Thread(target=self._log, args=(pod,), name="trireme-log", daemon=True)
        self._log_threads.append(thread)
        thread.start()

    def _log(self, pod: str) -> None:
        path = pod_path(self._job.namespace, pod, "log")
        try:
            for line in log_lines(self._job._client._kube, path, ended=self._ended[pod], opened=self._opened):
                self._put(line.rstrip("\r"))
                if self._stopped.is_set():
                    return
        except errors.TrainingSDKException as error:
            # The states still come; results() and curve() read the log again.
            self._failed = True
            log.warning("log of pod %s: %s", pod, error)


class JobArray(ResourceFrames):
    """Jobs of one function with different arguments."""

    def __init__(self, client: Client, jobs: list[Job], array: str) -> None:
        self._client = client
        self.jobs = jobs
        self.array = array

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)

    def __getitem__(self, index: int) -> Job:
        return self.jobs[index]

    def wait(self, timeout: float | None = None) -> JobArray:
        """Waits until all jobs have finished, with one watch. It does not wait for jobs that were deleted."""
        deadline = None if timeout is None else time.monotonic() + timeout
        waiting = {job.name: job for job in self.jobs if not job.status.finished}
        if not waiting:
            return self
        jobs = self._client._jobs
        query = {"labelSelector": f"{LABEL_ARRAY}={self.array}"}
        try:
            states = self._client._kube.watch(jobs.path(self._client.namespace), query, deadline=deadline)
            return self._wait(states, waiting, deadline, timeout)
        except KeyboardInterrupt:
            log.warning("Stopped waiting; the jobs continue. To delete them, call delete() of the array")
            raise

    def _wait(
        self,
        states: Iterator[tuple[str, JSON]],
        waiting: dict[str, Job],
        deadline: float | None,
        timeout: float | None,
    ) -> JobArray:
        for kind, item in states:
            for data in item["items"] if kind == "SYNCED" else [item] if kind in ("ADDED", "MODIFIED") else []:
                state = TrainJob.from_dict(data)
                if state.metadata.name in waiting:
                    waiting[state.metadata.name]._job = state
            if kind == "SYNCED":
                existing = {data["metadata"]["name"] for data in item["items"]}
                waiting = {name: job for name, job in waiting.items() if name in existing}
            if kind == "DELETED":
                waiting.pop(item["metadata"]["name"], None)
            waiting = {name: job for name, job in waiting.items() if not job.status.finished}
            if not waiting:
                return self
            if deadline is not None and time.monotonic() >= deadline:
                raise errors.WaitTimeoutError(
                    f"{len(waiting)} of {len(self.jobs)} jobs have not finished within {timeout:g} s",
                    reason="Timeout",
                )
        return self

    def results(self, timeout: float | None = None) -> list[list[Any]]:
        """Waits for all jobs, and returns the results of each. Raises the JobFailed of the first that failed."""
        self.wait(timeout)
        return [job.results() for job in self.jobs]

    def delete(self) -> None:
        """Deletes all jobs."""
        for job in self.jobs:
            with contextlib.suppress(errors.NotFoundError):
                job.delete()

    def rows(self) -> list[dict[str, Any]]:
        return [job_row(job._job) for job in self.jobs]


class RunList(list[Job], ResourceFrames):
    """Jobs of `run`, with a table for notebooks and `to_frame()`."""

    def rows(self) -> list[dict[str, Any]]:
        return [job_row(job._job) for job in self]

# SPDX-License-Identifier: Apache-2.0
"""Runs a function on the ranks of a job, and returns their results."""

from __future__ import annotations

import base64
import contextlib
import linecache
import logging
import os
import queue
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import cloudpickle

from trireme import _local, display, errors
from trireme._aio import asynchronous
from trireme._frames import ResourceFrames, html_table
from trireme._jobs import Jobs, log_lines, pod_path
from trireme._kube import JSON, Kube, Stream
from trireme._local import LocalJob
from trireme._models import TrainJob, TrainJobStatus
from trireme._payload import Payload, allocation, payload
from trireme._results import Collector, Outcome, is_result
from trireme.training.client import (
    DEFAULT_RUNTIME,
    VERSION,
    Environment,
    Resources,
    Runtime,
    TrainingClient,
    build_train_job,
    job_row,
    quantity,
)

if TYPE_CHECKING:
    from trireme._allocation import LocalRanks, Ranks

log = logging.getLogger("trireme")

FOLDER = "/etc/trireme/run"
LABEL_RUN = "training.kubeflow.org/run"
LABEL_RANKS = "training.kubeflow.org/ranks"
LABEL_ARRAY = "training.kubeflow.org/array"
TAG_OUTPUT = "training.kubeflow.org/tag-output"
MAX_RESULT_BYTES = 1 << 20
ENDED_ALLOCATION_SECONDS = 300
# A kubelet keeps 10 MiB of a log. The results of all ranks must fit, in base64 and with signatures.
MAX_ALL_RESULT_BYTES = 6 << 20


@dataclass
class Plan:
    """What a run would create, checked by the API server and Trireme's admission.

    The manifest of a run on this machine is empty.
    """

    manifest: JSON
    payload_bytes: int
    totals: dict[str, float]
    quotas: list[dict[str, Any]] = field(default_factory=list)

    def _rows(self) -> list[dict[str, Any]]:
        return [{"resource": name, "requested": value} for name, value in self.totals.items()]

    def _repr_html_(self) -> str:
        name = self.manifest["metadata"]["name"] if self.manifest else "this machine"
        quotas = f"<h5>Quotas</h5>{html_table(self.quotas)}" if self.quotas else ""
        return f"<h4>Plan of {name}</h4>{html_table(self._rows())}{quotas}"

    def __str__(self) -> str:
        size = f"{self.payload_bytes >> 10} KiB with the function and the code"
        if self.manifest:
            image = self.manifest["spec"]["trainer"]["image"]
            created = [f"TrainJob {self.manifest['metadata']['name']} with image {image}", f"a Secret of {size}"]
        else:
            created = [f"mpirun on this machine, with a temporary folder of {size}"]
        lines = [
            *created,
            *(f"{row['resource']}: {row['requested']:g}" for row in self._rows()),
            *(f"quota {q['quota']}: {q['resource']} {q['used']} of {q['hard']} used" for q in self.quotas),
        ]
        return "\n".join(lines)


class Results:
    """The outcomes of the ranks of one run."""

    def __init__(self, collector: Collector, name: str) -> None:
        self._collector = collector
        self._name = name

    def values(self, ranks: int) -> list[Any]:
        """Returns the results in the order of the ranks."""
        missing = [rank for rank in range(ranks) if rank not in self._collector.outcomes]
        if missing:
            cut = "; ".join(f"rank {r}: {n} of {m} lines" for r, n, m in self._collector.incomplete()[:5])
            raise errors.ResultsUnavailableError(
                f"job {self._name} succeeded, but the results of ranks {_ranges(missing)} are not in the launcher's log"
                + (f" ({cut})" if cut else ""),
                reason="ResultsMissing",
                remedy="The node keeps only the last part of a long log: print less, return less, or write the "
                "results to a volume; follow() reads them while the job runs",
            )
        return [cloudpickle.loads(self._collector.outcomes[rank].value) for rank in range(ranks)]

    def failure(self) -> Outcome | None:
        """Returns the first outcome that is no result."""
        return next((o for o in self._collector.outcomes.values() if o.kind != "result"), None)


def _ranges(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:10])) + (", …" if len(ranks) > 10 else "")


FRAME = re.compile(r'^  File "(.+)", line ([0-9]+), in ')


def with_source(traceback: str) -> str:
    """Returns a rank's traceback with the source lines that only the caller has, such as those of cells."""
    lines = traceback.splitlines()
    output = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        output.append(line)
        frame = FRAME.match(line)
        if frame and not following.startswith("    "):
            source = linecache.getline(frame[1], int(frame[2])).strip()
            output += [f"    {source}"] if source else []
    return "\n".join(output) + "\n"


def rank_failure(outcome: Outcome, name: str, image: str, status: TrainJobStatus) -> errors.JobFailed:
    """Returns the exception for what a rank sent instead of a result."""
    header = outcome.header
    node = errors.node_of(status, header["host"])
    if outcome.kind == "python":
        here, there = header["here"], header["there"]
        advice = f"Use an image with Python {there}, or run this program with Python {here}"
        what = f"image {image} has Python {here}, and this is Python {there}. The function was not called"
        message = f"job {name}: {what}. {advice}"
        return errors.JobFailed(message, status=status, reason="PythonVersionMismatch", remedy=advice, node=node)
    failure = errors.JobFailed(
        f"job {name}: rank {outcome.rank} on {header['host']} raised {header['type']}: {header['message']}",
        status=status,
        reason="TrainingError",
        cause=f"{header['type']}: {header['message']}",
        remedy="Correct the function; the traceback is that of the rank",
        rank=outcome.rank,
        node=node,
        last_lines=header["traceback"].splitlines()[-5:],
    )
    failure.traceback = with_source(header["traceback"])
    if outcome.value:
        # A class that only the image has cannot be unpickled here.
        with contextlib.suppress(Exception):
            failure.exception = cloudpickle.loads(outcome.value)
            failure.__cause__ = failure.exception
    return failure


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


class Curve(list[dict[str, Any]], ResourceFrames):
    """The reports of a program, in the order of time."""

    def rows(self) -> list[dict[str, Any]]:
        return list(self)


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


class Client:
    """Runs functions on the ranks of TrainJobs, or with `local` on this machine.

    `namespace` is by default that of the kubeconfig's context or of the pod. `image` and `runtime` are
    for all runs; the variable TRIREME_IMAGE has an image for all clients.
    """

    def __init__(
        self,
        *,
        namespace: str | None = None,
        image: str | None = None,
        runtime: str = DEFAULT_RUNTIME,
        config_file: str | None = None,
        context: str | None = None,
        in_cluster: bool = False,
        local: int | None = None,
    ) -> None:
        if local is not None and local < 1:
            raise errors.ValidationError("local", f"must be at least 1, not {local}")
        self.local = local
        self.image = image
        self.runtime = runtime
        if local is None:
            self._kube = Kube.connect(config_file, in_cluster, context)
            self._training = TrainingClient(kube=self._kube)
            self._jobs: Jobs[TrainJob] = self._training._jobs
            self.namespace = namespace or self._kube.namespace

    def close(self) -> None:
        """Closes the connections. Jobs continue."""
        if self.local is None:
            self._kube.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def run(self, func: Callable[..., Any], /, *args: Any, preflight: Literal[True], **settings: Any) -> Plan: ...

    @overload
    def run(
        self,
        func: Callable[..., Any],
        /,
        *args: Any,
        nodes: int = 1,
        slots: int = 1,
        image: str | None = None,
        runtime: str | None = None,
        code: str | os.PathLike[str] | None = None,
        name: str | None = None,
        resources: Resources | None = None,
        launcher_resources: Resources | None = None,
        env: Environment | None = None,
        volumes: list[JSON] | None = None,
        volume_mounts: list[JSON] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        max_seconds: int | None = None,
        delete_after_seconds: int | None = None,
        max_result_bytes: int | None = None,
        preflight: Literal[False] = False,
        **kwargs: Any,
    ) -> Job | LocalJob: ...

    @overload
    def run(
        self, func: Callable[..., Any], /, *args: Any, preflight: bool, **settings: Any
    ) -> Job | LocalJob | Plan: ...

    def run(
        self,
        func: Callable[..., Any],
        /,
        *args: Any,
        nodes: int = 1,
        slots: int = 1,
        image: str | None = None,
        runtime: str | None = None,
        code: str | os.PathLike[str] | None = None,
        name: str | None = None,
        resources: Resources | None = None,
        launcher_resources: Resources | None = None,
        env: Environment | None = None,
        volumes: list[JSON] | None = None,
        volume_mounts: list[JSON] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        max_seconds: int | None = None,
        delete_after_seconds: int | None = None,
        max_result_bytes: int | None = None,
        preflight: bool = False,
        **kwargs: Any,
    ) -> Job | LocalJob | Plan:
        """Calls `func(*args, **kwargs)` on `nodes` x `slots` ranks, and returns a Job at once.

        The function travels with its closure and the globals that it uses. `code` is a folder that is
        sent, too: it becomes the working directory. Together they have at most 700 KiB. Arguments of
        the function with a name of this method are bound with `functools.partial`.

        With `preflight`, it returns a Plan, and nothing is created.
        """
        nodes, slots = _count("nodes", nodes), _count("slots", slots)
        ranks = self.local or nodes * slots
        limit, most = result_limits(max_result_bytes, ranks)
        packed = payload(func, args, kwargs, code, limit, most)
        if self.local and preflight:
            _local.mpirun_path()
            _local.variables_of(env)
            return Plan({}, packed.size, {"ranks": self.local})
        if self.local:
            return LocalJob(packed, self.local, env)
        name = name or _job_name(func)
        chosen = self._training.find_runtime(runtime or self.runtime, self.namespace)
        manifest = self._manifest(
            command=["python3", f"{FOLDER}/run.pyz"],
            name=name,
            runtime=chosen,
            num_nodes=nodes,
            image=image or self.image or os.environ.get("TRIREME_IMAGE") or chosen.image or "",
            resources_per_node=resources,
            launcher_resources=launcher_resources,
            env=env,
            volumes=volumes,
            volume_mounts=volume_mounts,
            labels={**(labels or {}), LABEL_RUN: packed.run},
            annotations={TAG_OUTPUT: "true", **(annotations or {})},
            slots_per_worker=slots,
            active_deadline_seconds=max_seconds,
            ttl_seconds_after_finished=delete_after_seconds,
        )
        if preflight:
            return self._plan(manifest, packed, chosen)
        return self._submit(manifest, packed, ranks)

    def _manifest(self, command: list[str], **settings: Any) -> JSON:
        secret = {
            "name": "run-payload",
            # The user of the containers is not known. An allocation has a program among the files.
            "secret": {"secretName": _secret_name(settings["name"]), "defaultMode": 0o555},
        }
        mount = {"name": "run-payload", "mountPath": FOLDER, "readOnly": True}
        runtime: Runtime = settings.pop("runtime")
        settings["volumes"] = [*(settings["volumes"] or []), secret]
        settings["volume_mounts"] = [*(settings["volume_mounts"] or []), mount]
        manifest = build_train_job(command=command, args=None, namespace=self.namespace, **settings)
        manifest["spec"]["runtimeRef"] = {"apiGroup": "kubeflow.org", "kind": runtime.kind, "name": runtime.name}
        return manifest

    def allocate(
        self,
        *,
        nodes: int = 1,
        slots: int = 1,
        image: str | None = None,
        runtime: str | None = None,
        name: str | None = None,
        resources: Resources | None = None,
        launcher_resources: Resources | None = None,
        env: Environment | None = None,
        volumes: list[JSON] | None = None,
        volume_mounts: list[JSON] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        max_seconds: int | None = None,
        max_idle_seconds: int = 600,
        timeout: float | None = None,
        output: display.Display | None = None,
    ) -> Ranks | LocalRanks:
        """Starts pods that wait for calls, and returns `nodes` x `slots` ranks once all pods run.

        `with client.allocate(nodes=4) as ranks: ranks.run(f)`. The allocation ends with the block, with `close()`,
        after `max_idle_seconds` without a call, or after `max_seconds`. If the pods do not run within `timeout`
        seconds, or when waiting is interrupted, they are deleted.
        """
        from trireme._allocation import LocalRanks, Ranks, mpirun_of

        nodes, slots = _count("nodes", nodes), _count("slots", slots)
        max_idle_seconds = _count("max_idle_seconds", max_idle_seconds)
        if self.local:
            _local.mpirun_path()
            return LocalRanks(self)
        self._need_exec()
        chosen = self._training.find_runtime(runtime or self.runtime, self.namespace)
        mpirun, flags = mpirun_of(chosen.launcher_command, nodes * slots)
        packed = allocation(mpirun, max_idle_seconds)
        manifest = self._manifest(
            command=[f"{FOLDER}/mpirun", *flags],
            name=name or f"ranks-{secrets.token_hex(3)}",
            runtime=chosen,
            num_nodes=nodes,
            image=image or self.image or os.environ.get("TRIREME_IMAGE") or chosen.image or "",
            resources_per_node=resources,
            launcher_resources=launcher_resources,
            env=env,
            volumes=volumes,
            volume_mounts=volume_mounts,
            labels={**(labels or {}), LABEL_RUN: packed.run},
            annotations={TAG_OUTPUT: "true", **(annotations or {})},
            slots_per_worker=slots,
            active_deadline_seconds=max_seconds,
            # The program that would delete it may have ended.
            ttl_seconds_after_finished=ENDED_ALLOCATION_SECONDS,
        )
        # Ranks that wait for a call make no progress.
        manifest["spec"]["hang"] = {"after": "0s"}
        job = self._submit(manifest, packed, nodes * slots)
        ranks = Ranks(self, job._job, job._run, output)
        try:
            return ranks.wait(timeout)
        except BaseException:
            ranks.close()
            raise

    def _need_exec(self) -> None:
        """Raises ForbiddenError if the caller may not execute commands in pods, by which calls reach them."""
        attributes = {"namespace": self.namespace, "verb": "create", "resource": "pods", "subresource": "exec"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = self._kube.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        if not answer["status"]["allowed"]:
            raise errors.ForbiddenError(
                f"no permission to create pods/exec in namespace {self.namespace}",
                status=403,
                reason="Forbidden",
                remedy="Calls reach the pods of an allocation as commands: ask for the role edit, or to create and get "
                "pods/exec",
            )

    def _submit(self, manifest: JSON, packed: Payload, ranks: int) -> Job:
        """Creates the job, then the Secret that it owns: deleting the job deletes both.

        The pods wait for the Secret. If it cannot be created, the job is deleted, also if the answer of
        the API server to its creation was lost.
        """
        job = None
        try:
            job = self._jobs.create(self.namespace, manifest)
            self._kube.create(f"/api/v1/namespaces/{self.namespace}/secrets", _secret(job, packed, ranks))
        except BaseException as error:
            if job and isinstance(error, errors.ForbiddenError) and not isinstance(error, errors.QuotaExceededError):
                error.remedy = (
                    "run() sends the function in a Secret: ask for the role edit, or to create and get secrets"
                )
            if job or not _is_refusal(error):
                self._clean_up(manifest["metadata"]["name"], packed.run, error)
            raise
        log.info("created job %s in namespace %s", job.metadata.name, self.namespace)
        return Job(self, job, Run(packed.run, packed.key, ranks))

    def _clean_up(self, name: str, run: str, error: BaseException) -> None:
        """Deletes the job of a run that was not created completely, if it exists."""
        try:
            # Another job may have the name.
            if self._jobs.get(name, self.namespace).metadata.labels.get(LABEL_RUN) == run:
                self._jobs.delete(name, self.namespace)
        except errors.NotFoundError:
            pass
        except errors.TrainingSDKException as failure:
            log.debug("cannot delete job %s: %s", name, failure)
            if isinstance(error, errors.TrainingSDKException):
                error.remedy = f"Job {name} in namespace {self.namespace} may exist: delete it"

    def _plan(self, manifest: JSON, packed: Payload, runtime: Runtime) -> Plan:
        self._jobs.create(self.namespace, manifest, dry_run=True)
        used, _ = self._kube.items(f"/api/v1/namespaces/{self.namespace}/resourcequotas")
        quotas = [
            {
                "quota": quota["metadata"]["name"],
                "resource": key,
                "used": quota["status"].get("used", {}).get(key, "0"),
                "hard": hard,
            }
            for quota in used
            for key, hard in quota.get("status", {}).get("hard", {}).items()
        ]
        return Plan(manifest, packed.size, _totals(manifest, runtime), quotas)

    def map(self, func: Callable[..., Any], items: Iterable[Any], /, **settings: Any) -> JobArray:
        """Submits one job for each item, `func(item)`, with the settings of `run`.

        A tuple is the positional arguments, a dictionary the keyword arguments. If one job cannot be
        created, those before are deleted.
        """
        self._need_cluster("map", "Call run in a loop")
        array = secrets.token_hex(4)
        labels = {**settings.pop("labels", {}), LABEL_ARRAY: array}
        base = settings.pop("name", None) or re.sub(r"-[0-9a-z]+$", "", _job_name(func))
        jobs: list[Job] = []
        try:
            for index, item in enumerate(items):
                args = item if isinstance(item, tuple) else () if isinstance(item, dict) else (item,)
                kwargs = item if isinstance(item, dict) else {}
                jobs.append(self.run(func, *args, **kwargs, name=f"{base}-{array}-{index}", labels=labels, **settings))
        except BaseException:
            JobArray(self, jobs, array).delete()
            raise
        return JobArray(self, jobs, array)

    def job(self, name: str) -> Job:
        """Returns a job that `run` created earlier, perhaps in another process.

        It reads the key of the run from the job's Secret, for which it needs permission to get secrets.
        """
        self._need_cluster("job", "Keep the object that run returns")
        job = self._jobs.get(name, self.namespace)
        return Job(self, job, self._read_run(name))

    def _need_cluster(self, method: str, remedy: str) -> None:
        if self.local:
            raise errors.ValidationError("local", f"{method} needs a cluster", remedy=remedy)

    def _read_run(self, name: str) -> Run:
        not_a_run = errors.NotFoundError(
            f"TrainJob {name} was not created by run(), or its Secret is missing",
            status=404,
            reason="NotARun",
            remedy="Use TrainingClient for this job",
        )
        try:
            secret = self._kube.get(f"/api/v1/namespaces/{self.namespace}/secrets/{_secret_name(name)}")
        except errors.NotFoundError as error:
            raise not_a_run from error
        labels = secret["metadata"].get("labels", {})
        if LABEL_RUN not in labels:
            raise not_a_run
        return Run(labels[LABEL_RUN], base64.b64decode(secret["data"]["key"]), int(labels[LABEL_RANKS]))

    def jobs(self) -> RunList:
        """Returns the jobs of the namespace that `run` created and that still exist, with one request.

        A job reads its Secret when its results are read.
        """
        self._need_cluster("jobs", "Keep the objects that run returns")
        return RunList(Job(self, job) for job in self._jobs.all(self.namespace, LABEL_RUN))


AsyncClient = asynchronous(Client, "AsyncClient", __name__)


def _is_refusal(error: BaseException) -> bool:
    """Whether the API server has answered that it did not create an object."""
    return isinstance(error, errors.K8sApiException) and error.status < 500


def result_limits(max_result_bytes: int | None, ranks: int) -> tuple[int, int]:
    """Returns the limit for the result of a rank, and the highest that is possible."""
    most = MAX_ALL_RESULT_BYTES // ranks
    if max_result_bytes is None:
        return min(MAX_RESULT_BYTES, most), most
    limit = _count("max_result_bytes", max_result_bytes)
    if limit > most:
        raise errors.ValidationError(
            "max_result_bytes",
            f"must be at most {most} with {ranks} ranks, not {limit}",
            remedy="Write larger results to a volume, and return their paths",
        )
    return limit, most


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise errors.ValidationError(name, f"must be at least 1, not {value}")
    return value


def _job_name(func: Callable[..., Any]) -> str:
    """Returns a new name that begins with the function's."""
    words = re.sub(r"[^a-z0-9]+", "-", getattr(func, "__name__", "run").lower()).strip("-")
    words = re.sub(r"^[^a-z]+", "", words)[:25].strip("-")
    return f"{words or 'run'}-{secrets.token_hex(3)}"


def _secret_name(job: str) -> str:
    return f"{job}-run"


def _secret(job: TrainJob, packed: Payload, ranks: int) -> JSON:
    owner = {
        "apiVersion": f"kubeflow.org/{VERSION}",
        "kind": "TrainJob",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": _secret_name(job.metadata.name),
            "labels": {LABEL_RUN: packed.run, LABEL_RANKS: str(ranks)},
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": {name: base64.b64encode(content).decode() for name, content in packed.files.items()},
    }


def _totals(manifest: JSON, runtime: Runtime) -> dict[str, float]:
    """Returns the pods and the requests of a job. The runtime has those that the manifest does not have."""
    trainer = manifest["spec"]["trainer"]
    totals: dict[str, float] = {
        "pods": trainer["numNodes"] + 1,
        "ranks": trainer["numNodes"] * trainer["slotsPerWorker"],
    }
    worker = trainer.get("resourcesPerNode", runtime.worker_resources)
    launcher = manifest["spec"].get("launcher", {}).get("resources", runtime.launcher_resources)
    for amounts, pods in ((worker, trainer["numNodes"]), (launcher, 1)):
        # As in Kubernetes, a limit without a request is also the request.
        for name, amount in {**amounts.get("limits", {}), **amounts.get("requests", {})}.items():
            totals[name] = totals.get(name, 0) + quantity(amount) * pods
    return totals


def default_code() -> Path:
    """Returns the current folder: what `code="."` sends."""
    return Path.cwd()

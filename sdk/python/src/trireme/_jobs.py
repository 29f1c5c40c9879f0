# SPDX-License-Identifier: Apache-2.0
"""What the clients of both kinds of jobs share: read, wait, logs, events, deletion."""

from __future__ import annotations

import contextlib
import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from trireme import _kube, errors
from trireme._kube import JSON, Kube, Stream, pause
from trireme._objects import JobObject
from trireme._results import is_result

log = logging.getLogger("trireme")

GROUP = "kubeflow.org"
LABEL_JOB_NAME = "training.kubeflow.org/job-name"
LABEL_JOB_TYPE = "training.kubeflow.org/job-type"
LABEL_ROLE = "training.kubeflow.org/replica-type"
LABEL_INDEX = "training.kubeflow.org/replica-index"

J = TypeVar("J", bound=JobObject)


@dataclass
class Event:
    """An event of a job or of one of its pods."""

    type: str
    reason: str
    message: str
    timestamp: datetime | None
    source: str

    @classmethod
    def from_dict(cls, data: JSON) -> Event:
        time = data.get("lastTimestamp") or data.get("eventTime") or data["metadata"].get("creationTimestamp")
        source = data.get("reportingComponent") or data.get("source", {}).get("component", "")
        return cls(
            type=data.get("type", ""),
            reason=data.get("reason", ""),
            message=data.get("message", ""),
            timestamp=datetime.fromisoformat(time.replace("Z", "+00:00")) if time else None,
            source=source,
        )


def check_name(name: str, longest: int = 63) -> None:
    """Raises ValidationError if an object cannot have the name."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > longest:
        raise errors.ValidationError(
            "name",
            f"{name!r} must consist of lower case letters, digits and '-', start with a letter, end with a letter or "
            f"digit, and have at most {longest} characters",
        )


def pod_path(namespace: str, name: str = "", part: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "") + (f"/{part}" if part else "")


class Jobs(Generic[J]):
    """The jobs of one kind."""

    def __init__(self, kube: Kube, kind: str, version: str, model: type[J]) -> None:
        self.kube = kube
        self.kind = kind
        self.version = version
        self.model = model

    def path(self, namespace: str, name: str = "") -> str:
        plural = self.kind.lower() + "s"
        root = f"/apis/{GROUP}/{self.version}"
        return root + (f"/namespaces/{namespace}" if namespace else "") + f"/{plural}" + (f"/{name}" if name else "")

    def create(self, namespace: str, manifest: JSON, *, dry_run: bool = False) -> J:
        return self.model.from_dict(self.kube.create(self.path(namespace), manifest, dry_run=dry_run))

    def get(self, name: str, namespace: str) -> J:
        return self.model.from_dict(self.get_dict(name, namespace))

    def get_dict(self, name: str, namespace: str) -> JSON:
        try:
            return self.kube.get(self.path(namespace, name))
        except errors.NotFoundError as error:
            raise self.not_found(name, namespace) from error

    def not_found(self, name: str, namespace: str) -> errors.NotFoundError:
        message = f"{self.kind} {name} not found in namespace {namespace}"
        return errors.NotFoundError(message, status=404, reason="NotFound")

    def all(self, namespace: str, label_selector: str | None = None) -> list[J]:
        items, _ = self.kube.items(self.path(namespace), selector(label_selector))
        return [self.model.from_dict(item) for item in items]

    def delete(self, name: str, namespace: str, grace_period_seconds: int | None = None) -> None:
        options: JSON = {"propagationPolicy": "Background"}
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        try:
            self.kube.delete(self.path(namespace, name), options)
        except errors.NotFoundError as error:
            raise self.not_found(name, namespace) from error

    def wait_deleted(self, name: str, namespace: str, timeout: float) -> None:
        """Waits until the job does not exist any more."""
        with contextlib.suppress(errors.NotFoundError):
            for _ in self.changes(name, namespace, timeout):
                pass

    def changes(
        self,
        name: str,
        namespace: str,
        timeout: float | None = None,
        opened: Callable[[Stream], None] | None = None,
    ) -> Iterator[J]:
        """Yields the job and each change of it, with one watch. Raises NotFoundError once it is deleted."""
        deadline = None if timeout is None else time.monotonic() + timeout
        query = {"fieldSelector": f"metadata.name={name}"}
        uid = None
        for kind, item in self.kube.watch(self.path(namespace), query, deadline=deadline, opened=opened):
            for job in item["items"] if kind == "SYNCED" else [item] if kind in ("ADDED", "MODIFIED") else []:
                # A job that was created again under the name is another one.
                if uid not in (None, job["metadata"]["uid"]):
                    raise self.not_found(name, namespace)
                uid = job["metadata"]["uid"]
                yield self.model.from_dict(job)
            if kind == "DELETED" or (kind == "SYNCED" and not item["items"]):
                raise self.not_found(name, namespace)
            if deadline is not None and time.monotonic() >= deadline:
                raise errors.WaitTimeoutError(
                    f"{self.kind} {name} has not finished within {timeout:g} s",
                    reason="Timeout",
                    remedy="The job continues; wait again, or look at its status and events",
                )

    def wait(self, name: str, namespace: str, timeout: float | None, interval: float = 10) -> J:
        """Waits until the job has finished."""
        try:
            for job in self.changes(name, namespace, timeout):
                if job.status.finished:
                    return job
        except errors.ForbiddenError:
            return self._poll(name, namespace, timeout, interval)
        raise AssertionError("a watch ends with an exception")

    def _poll(self, name: str, namespace: str, timeout: float | None, interval: float) -> J:
        """Waits like `wait`, for callers who may read the job but not watch it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            job = self.get(name, namespace)
            if job.status.finished:
                return job
            if deadline is not None and time.monotonic() + interval > deadline:
                raise errors.WaitTimeoutError(
                    f"{self.kind} {name} has not finished within {timeout:g} s", reason="Timeout"
                )
            pause(interval)

    def pods(self, name: str, namespace: str, role: str = "all", index: int | None = None) -> list[JSON]:
        """Returns the pods of the job: the launcher, then the workers by their index."""
        labels = {}
        if role != "all":
            labels[LABEL_ROLE] = role
        if index is not None:
            labels[LABEL_INDEX] = str(index)
        return self._of_job(pod_path(namespace), name, labels)

    def pod_metrics(self, name: str, namespace: str) -> list[JSON]:
        """Returns what the pods of the job use, in the same order; nothing without a metrics API."""
        try:
            return self._of_job(f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", name, {})
        except (errors.NotFoundError, errors.ForbiddenError):
            return []

    def _of_job(self, path: str, name: str, labels: dict[str, str]) -> list[JSON]:
        labels = {LABEL_JOB_NAME: name, LABEL_JOB_TYPE: self.kind.lower(), **labels}
        items, _ = self.kube.items(path, selector(",".join(f"{key}={value}" for key, value in labels.items())))

        def position(item: JSON) -> tuple[bool, int, str]:
            label = item["metadata"]["labels"]
            return label.get(LABEL_ROLE) == "worker", int(label.get(LABEL_INDEX, 0)), item["metadata"]["name"]

        return sorted(items, key=position)

    def logs(
        self,
        name: str,
        namespace: str,
        role: str,
        index: int | None,
        *,
        tail_lines: int | None = None,
        since_seconds: int | None = None,
        follow: bool = False,
        container: str | None = None,
    ) -> tuple[dict[str, str], Iterator[str]]:
        """Returns the logs of the job's pods by their names, or with `follow` their lines as they are written."""
        if role not in ("all", "launcher", "worker", "initializer"):
            raise errors.ValidationError("pod_type", f"{role!r} must be all, launcher, worker or initializer")
        self.get_dict(name, namespace)
        names = [pod["metadata"]["name"] for pod in self.pods(name, namespace, role, index)]
        query: JSON = {"tailLines": tail_lines, "sinceSeconds": since_seconds, "container": container}
        query = {key: value for key, value in query.items() if value is not None}
        if not names:
            raise errors.NotFoundError(f"{self.kind} {name} has no such pod in namespace {namespace}", status=404)
        if follow:
            return {}, self._follow(names, namespace, {**query, "follow": "true"})
        return {pod: self.log(pod, namespace, query) for pod in names}, iter(())

    def log(self, pod: str, namespace: str, query: JSON) -> str:
        """Returns the log of a pod without results of ranks; an empty one if its container waits for its start."""
        try:
            text = self.kube.text(pod_path(namespace, pod, "log"), query)
        except errors.K8sApiException as error:
            if error.status == 400:
                return ""
            raise
        return "".join(line for line in text.splitlines(keepends=True) if not is_result(line))

    def _follow(self, pods: list[str], namespace: str, query: JSON) -> Iterator[str]:
        """Merges the logs of pods. The threads that read them end with the iteration."""
        lines: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=1000)
        streams = [self.kube.lines(pod_path(namespace, pod, "log"), query) for pod in pods]
        stopped = threading.Event()

        def put(item: str | BaseException | None) -> None:
            while not stopped.is_set():
                with contextlib.suppress(queue.Full):
                    return lines.put(item, timeout=0.2)

        def read(pod: str, stream: Stream) -> None:
            prefix = f"[{pod}] " if len(pods) > 1 else ""
            try:
                for raw in stream:
                    line = raw.decode(errors="replace")
                    if not is_result(line):
                        put(prefix + line)
                put(None)
            except BaseException as error:
                put(error)

        threads = [
            threading.Thread(target=read, args=pair, name="trireme-log", daemon=True)
            for pair in zip(pods, streams, strict=True)
        ]
        try:
            for thread in threads:
                thread.start()
            open_streams = len(pods)
            while open_streams:
                item = lines.get()
                if isinstance(item, BaseException):
                    raise item
                if item is None:
                    open_streams -= 1
                else:
                    yield item
        finally:
            stopped.set()
            for stream in streams:
                stream.close()
            for thread in threads:
                if thread.ident:
                    thread.join()

    def events(self, name: str, namespace: str) -> Iterator[Event]:
        """Yields the events of the job and its pods, until the job has finished or is deleted.

        The events that the API server still has come first. One more watch observes the job.
        """
        uid = self.get_dict(name, namespace)["metadata"]["uid"]
        ended = threading.Event()
        streams: list[Stream] = []

        def observe() -> None:
            with contextlib.suppress(errors.TrainingSDKException):
                for job in self.changes(name, namespace, opened=opened):
                    if job.status.finished or ended.is_set():
                        break
            ended.set()
            for stream in list(streams):
                stream.shutdown()

        observer = threading.Thread(target=observe, name="trireme-watch", daemon=True)

        def belongs(event: JSON) -> bool:
            about = event["involvedObject"]
            return about.get("uid") == uid or (
                about.get("kind") == "Pod"
                and bool(re.fullmatch(re.escape(name) + r"-(launcher|worker|initializer)\b.*", about["name"]))
            )

        def opened(stream: Stream) -> None:
            streams.append(stream)
            if ended.is_set():
                stream.shutdown()

        seen: set[tuple[str, str]] = set()

        def new(events: list[JSON]) -> Iterator[Event]:
            for event in events:
                version = event["metadata"]["uid"], event["metadata"]["resourceVersion"]
                if version not in seen and belongs(event):
                    seen.add(version)
                    yield Event.from_dict(event)

        path = f"/api/v1/namespaces/{namespace}/events"
        observer.start()
        try:
            for kind, item in self.kube.watch(path, {}, opened=opened):
                if kind in ("SYNCED", "ADDED", "MODIFIED"):
                    yield from new(item["items"] if kind == "SYNCED" else [item])
                if ended.is_set():
                    break
            # Events that were written while the watch ended.
            yield from new(self.kube.items(path)[0])
        finally:
            ended.set()
            for stream in list(streams):
                stream.shutdown()
            observer.join()


# The time that the kubelet puts in front of a line. The seconds, and the zone, are what sinceTime can have.
STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
LOG_RETRIES = 5
# A stream may end because its API server or kubelet is restarted. The pause doubles with each check.
LOG_CHECK_SECONDS = 2.0
LOG_CHECK_MAX_SECONDS = 60.0


def log_lines(
    kube: Kube,
    path: str,
    *,
    ended: threading.Event | None = None,
    opened: Callable[[Stream], None] = lambda _: None,
) -> Iterator[str]:
    """Yields the lines of a log. A stream that is interrupted continues after the last line.

    With `ended`, it follows the log until it has read all of it after the event was set, or until another
    thread shuts down the stream, which `opened` gets.
    """
    query = {"timestamps": "true", **({"follow": "true"} if ended else {})}
    last, count, failures, delay = "", 0, 0, LOG_CHECK_SECONDS
    over = ended is not None and ended.is_set()
    while True:
        # Lines of the second of the last line come again.
        skipped, again = last, count
        try:
            with kube.lines(path, query) as stream:
                opened(stream)
                for raw in stream:
                    line = raw.decode(errors="replace")
                    found = STAMP.match(line)
                    if not found:
                        yield line
                        continue
                    stamp = found[0]
                    if stamp < skipped:
                        continue
                    if stamp == skipped and again:
                        again -= 1
                        continue
                    failures, delay = 0, LOG_CHECK_SECONDS
                    last, count = stamp, count + 1 if stamp == last else 1
                    query["sinceTime"] = found[1] + found[2]
                    yield line[found.end() :]
                if stream.was_shut_down:
                    return
            if ended is None or over:
                return
            # If the container ended only now, it may have written lines since the stream ended.
            over = ended.wait(delay)
            delay = min(2 * delay, LOG_CHECK_MAX_SECONDS)
        except errors.ConnectionFailedError as error:
            failures += 1
            if failures > LOG_RETRIES:
                raise
            log.debug("log interrupted, continuing: %s", error)
            pause(_kube._pause(failures))


def selector(labels: str | None) -> JSON:
    return {"labelSelector": labels} if labels else {}

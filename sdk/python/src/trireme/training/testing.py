# SPDX-License-Identifier: Apache-2.0
"""A client without a cluster, for the tests of programs that use TrainingClient."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from trireme import errors
from trireme._jobs import Event
from trireme._kube import JSON
from trireme._models import RuntimeRef, TrainJob, TrainJobStatus
from trireme.training.client import JobList, JobMetrics, Runtime, TrainingClient, build_train_job, either


class MockTrainingClient(TrainingClient):
    """Has the methods of TrainingClient, and keeps its jobs in memory.

    Jobs that it creates stay Pending. `register_job` adds a job or changes its phase.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        self._stored: dict[tuple[str, str], TrainJob] = {}
        self._logs: dict[tuple[str, str], str] = {}

    def close(self) -> None:
        """Does nothing."""

    def register_job(
        self,
        name: str,
        namespace: str = "default",
        status_phase: str = "Running",
        *,
        failure_reason: str | None = None,
        failure_message: str | None = None,
        logs: str = "",
    ) -> TrainJob:
        """Adds a job in that phase, or moves the job to it."""
        job = self._stored.get((namespace, name)) or TrainJob()
        job.metadata.name, job.metadata.namespace = name, namespace
        status = {"phase": status_phase, "failureReason": failure_reason, "failureMessage": failure_message}
        job.status = TrainJobStatus.from_dict(status)
        self._stored[namespace, name] = job
        self._logs[namespace, name] = logs
        return job

    def create_mpi_job(
        self,
        name: str,
        runtime: str,
        num_nodes: int,
        image: str,
        command: list[str] | None = None,
        args: list[str] | None = None,
        resources_per_node: Any = None,
        env: Any = None,
        volumes: list[JSON] | None = None,
        volume_mounts: list[JSON] | None = None,
        namespace: str = "default",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **settings: Any,
    ) -> TrainJob:
        """Checks the values as TrainingClient does, and stores the job."""
        dry_run = settings.pop("dry_run", False)
        same = settings.pop("resources", None)
        manifest = build_train_job(
            name,
            num_nodes,
            image,
            command,
            args,
            either("resources", same, "resources_per_node", resources_per_node),
            env,
            volumes,
            volume_mounts,
            namespace,
            labels,
            annotations,
            **settings,
        )
        if (namespace, name) in self._stored:
            raise errors.AlreadyExistsError(f"TrainJob {name} already exists", status=409, reason="AlreadyExists")
        job = TrainJob.from_dict(manifest)
        job.spec.runtime_ref = RuntimeRef(kind="ClusterTrainingRuntime", name=runtime, api_group="kubeflow.org")
        job.metadata.creation_timestamp = datetime.now(timezone.utc)
        job.status.phase = "Pending"
        if not dry_run:
            self._stored[namespace, name] = job
        return job

    def get_job(self, name: str, namespace: str = "default") -> TrainJob:
        """Returns the job that was created or registered."""
        if (namespace, name) not in self._stored:
            raise errors.NotFoundError(f"TrainJob {name} not found in namespace {namespace}", status=404)
        return self._stored[namespace, name]

    def wait_for_job_completion(
        self,
        name: str,
        namespace: str = "default",
        timeout: float | None = None,
        polling_interval: float = 10,
    ) -> TrainJob:
        """Returns the job if it has finished. Otherwise it cannot finish any more: raises WaitTimeoutError."""
        job = self.get_job(name, namespace)
        if not job.status.finished:
            raise errors.WaitTimeoutError(f"TrainJob {name} is {job.status.phase}: register_job changes it")
        return job

    def stream_job_events(self, name: str, namespace: str = "default") -> Iterator[Event]:
        """Yields one event, with the phase."""
        phase = self.get_job(name, namespace).status.phase or "Pending"
        yield Event("Normal", phase, f"the job is {phase}", datetime.now(timezone.utc), "mock")

    def get_job_logs(
        self,
        name: str,
        namespace: str = "default",
        pod_type: str = "all",
        pod_index: int | None = None,
        tail_lines: int | None = 100,
        since_seconds: int | None = None,
        follow: bool = False,
    ) -> str | Iterator[str]:
        """Returns the logs that register_job got."""
        self.get_job(name, namespace)
        lines = self._logs.get((namespace, name), "").splitlines(keepends=True)[-(tail_lines or 0) :]
        return iter(line.rstrip("\n") for line in lines) if follow else "".join(lines)

    def delete_job(
        self,
        name: str,
        namespace: str = "default",
        grace_period_seconds: int = 30,
        *,
        grace_period: int | None = None,
    ) -> None:
        """Removes the job."""
        self.get_job(name, namespace)
        del self._stored[namespace, name]

    def list_jobs(
        self,
        namespace: str = "default",
        runtime: str | None = None,
        status: str | None = None,
        label_selector: str | None = None,
    ) -> JobList:
        """Returns the stored jobs. Of label selectors, it knows key=value."""
        wanted = dict(pair.split("=", 1) for pair in label_selector.split(",")) if label_selector else {}
        return JobList(
            job
            for (job_namespace, _), job in self._stored.items()
            if namespace in ("", job_namespace)
            and (runtime is None or (job.spec.runtime_ref and job.spec.runtime_ref.name == runtime))
            and (status is None or job.status.phase == status)
            and wanted.items() <= job.metadata.labels.items()
        )

    def get_job_metrics(self, name: str, namespace: str = "default", time_range: str = "1h") -> JobMetrics:
        """Returns no metrics."""
        self.get_job(name, namespace)
        return JobMetrics()

    def find_runtime(self, name: str, namespace: str = "default") -> Runtime:
        """Returns a runtime of that name."""
        return Runtime(name, "ClusterTrainingRuntime", None, "mpi", "OpenMPI", 2, 1)

    def list_runtimes(self, namespace: str = "default", framework: str | None = None) -> list[Runtime]:
        """Returns one runtime."""
        return [self.find_runtime("mpi-openmpi-cpu")]

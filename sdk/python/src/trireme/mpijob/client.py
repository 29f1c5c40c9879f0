# SPDX-License-Identifier: Apache-2.0
"""The client of MPIJobs, and an MPIJob as an object with methods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from trireme import _models as models
from trireme import display, errors
from trireme._frames import ResourceFrames
from trireme._jobs import Jobs, check_name
from trireme._kube import JSON, Kube
from trireme.mpijob.specs import ResourceRequirements, ResourceSpec, WorkerSpec
from trireme.mpijob.templates import TEMPLATES
from trireme.training.client import JobMetrics, TrainingClient, job_row

VERSION = "v2beta1"
MPI_IMPLEMENTATIONS = ("OpenMPI", "IntelMPI", "Intel", "MPICH")
MIN_WORKERS = 2
# The launcher runs mpirun, and no ranks.
LAUNCHER_RESOURCES = ResourceSpec(cpu="500m", memory="1Gi")


class MPIJob:
    """An MPIJob: what it will be before `create()`, and what it is afterwards."""

    def __init__(
        self,
        name: str,
        namespace: str = "default",
        workers: int = 2,
        image: str = "",
        command: list[str] | None = None,
        args: list[str] | None = None,
        resources: ResourceSpec | None = None,
        volume_mounts: list[JSON] | None = None,
        volumes: list[JSON] | None = None,
        env: dict[str, str] | None = None,
        node_selector: dict[str, str] | None = None,
        affinity: JSON | None = None,
        tolerations: list[JSON] | None = None,
        slots_per_worker: int = 1,
        clean_pod_policy: str = "Running",
        active_deadline_seconds: int | None = None,
        backoff_limit: int = 6,
        ttl_seconds_after_finished: int | None = None,
        *,
        mpi_implementation: str = "OpenMPI",
        launcher: WorkerSpec | None = None,
        labels: dict[str, str] | None = None,
        client: MPIJobClient | None = None,
    ) -> None:
        check_name(name)
        if workers < MIN_WORKERS:
            raise errors.ValidationError("workers", f"must be at least {MIN_WORKERS}, not {workers}")
        worker = WorkerSpec(
            replicas=workers,
            image=image,
            resources=resources or ResourceRequirements(),
            env=env or {},
            volumes=volumes or [],
            volume_mounts=volume_mounts or [],
            node_selector=node_selector or {},
            tolerations=tolerations or [],
            affinity=affinity,
        )
        policy = {
            "cleanPodPolicy": clean_pod_policy,
            "activeDeadlineSeconds": active_deadline_seconds,
            "backoffLimit": backoff_limit,
            "ttlSecondsAfterFinished": ttl_seconds_after_finished,
        }
        launcher = launcher or _launcher(worker, command, args)
        manifest = build_manifest(
            name, namespace, worker, launcher, mpi_implementation, slots_per_worker, policy, labels
        )
        self._set(manifest, client)

    def _set(self, manifest: JSON, client: MPIJobClient | None) -> None:
        self._manifest = manifest
        self._job = models.MPIJob.from_dict(manifest)
        self._client_or_none = client

    @classmethod
    def _of(cls, manifest: JSON, client: MPIJobClient | None) -> MPIJob:
        job = cls.__new__(cls)
        job._set(manifest, client)
        return job

    @property
    def _client(self) -> MPIJobClient:
        if self._client_or_none is None:
            self._client_or_none = MPIJobClient(namespace=self.namespace)
        return self._client_or_none

    def _build_manifest(self) -> JSON:
        """Returns the manifest that `create()` sends."""
        return {key: value for key, value in self._manifest.items() if key != "status"}

    # What it is.

    @property
    def name(self) -> str:
        """The name of the job."""
        return self._job.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace of the job."""
        return self._job.metadata.namespace or "default"

    @property
    def spec(self) -> models.MPIJobSpec:
        """The spec of the job."""
        return self._job.spec

    @property
    def status(self) -> models.MPIJobStatus:
        """The status when it was last read: `refresh()` reads it."""
        return self._job.status

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed."""
        return self._job.status.phase or "Pending"

    def _count(self, field: str) -> int:
        statuses = self._job.status.replica_statuses.get("Worker")
        return int(getattr(statuses, field, None) or 0)

    @property
    def workers_running(self) -> int:
        """The number of workers that are ready."""
        return self._job.status.ready_worker_count or 0

    @property
    def workers_succeeded(self) -> int:
        """The number of workers that succeeded."""
        return self._count("succeeded")

    @property
    def workers_failed(self) -> int:
        """The number of workers that failed."""
        return self._count("failed")

    def is_running(self) -> bool:
        """Whether the job runs."""
        return self.phase == "Running"

    def is_completed(self) -> bool:
        """Whether the job has finished."""
        return self._job.status.finished

    def is_succeeded(self) -> bool:
        """Whether the job succeeded."""
        return self.phase == "Succeeded"

    def is_failed(self) -> bool:
        """Whether the job failed."""
        return self.phase == "Failed"

    # What it does.

    def create(self) -> MPIJob:
        """Creates the job, and returns it with its initial status."""
        self._set(self._client._create(self._build_manifest(), self.namespace), self._client)
        return self

    def refresh(self) -> MPIJob:
        """Reads the job."""
        self._set(self._client._jobs.get_dict(self.name, self.namespace), self._client)
        return self

    def get_status(self) -> str:
        """Reads the job, and returns its phase."""
        return self.refresh().phase

    def wait_for_completion(self, timeout: float | None = 3600, poll_interval: float = 10) -> str:
        """Waits until the job has finished, and returns Succeeded or Failed.

        It watches the job; `poll_interval` is for callers who may not watch. Raises WaitTimeoutError.
        """
        self._client._jobs.wait(self.name, self.namespace, timeout, poll_interval)
        return self.refresh().phase

    def monitor(self, callback: Callable[[MPIJob], None], poll_interval: float = 10) -> None:
        """Calls `callback` with the job at first and after each change, until it has finished."""
        for state in self._client._jobs.changes(self.name, self.namespace):
            self._job = state
            callback(self)
            if state.status.finished:
                return

    def raise_for_failure(self) -> MPIJob:
        """Raises JobFailedError, with reason, rank and remedy, if the job failed."""
        if self.is_failed():
            raise errors.job_failure(errors.JobFailedError, self.name, self._job.status)
        return self

    def delete(self, wait: bool = False, timeout: float = 60) -> None:
        """Deletes the job, and with `wait` returns when it does not exist any more."""
        self._client.delete_mpijob(self.name, self.namespace, wait=wait, timeout=timeout)

    def get_logs(
        self,
        worker_index: int | None = None,
        follow: bool = False,
        tail_lines: int | None = 1000,
        *,
        worker: int | None = None,
        container: str | None = None,
    ) -> dict[str, str] | Iterator[str]:
        """Returns the logs by the names of the pods, or with `follow` an iterator of lines.

        Without `worker_index` (or `worker`), they are those of all pods.
        """
        index = worker_index if worker_index is not None else worker
        role = "all" if index is None else "worker"
        texts, lines = self._client._jobs.logs(
            self.name, self.namespace, role, index, tail_lines=tail_lines, follow=follow, container=container
        )
        return lines if follow else texts

    def get_worker_statuses(self) -> list[dict[str, Any]]:
        """Returns index, name, phase, node, readiness and start time of each worker."""
        statuses = []
        for index, pod in enumerate(self._client._jobs.pods(self.name, self.namespace, "worker")):
            status = pod.get("status", {})
            started = status.get("startTime")
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", []))
            statuses.append(
                {
                    "index": index,
                    "name": pod["metadata"]["name"],
                    "phase": status.get("phase", "Unknown"),
                    "node": pod["spec"].get("nodeName"),
                    "ready": ready,
                    "start_time": datetime.fromisoformat(started.replace("Z", "+00:00")) if started else None,
                }
            )
        return statuses

    def get_metrics(self) -> JobMetrics:
        """Returns the resources that the pods use, and the progress that the program reported."""
        client = TrainingClient(kube=self._client._kube)
        client._jobs = self._client._jobs  # type: ignore[assignment]
        return client.get_job_metrics(self.name, self.namespace)

    # Conversions.

    def to_dict(self) -> JSON:
        """Returns the job as the API's JSON."""
        return dict(self._manifest)

    def to_yaml(self) -> str:
        """Returns the job as YAML, for kubectl apply."""
        return yaml.safe_dump(self._manifest, sort_keys=False)

    @classmethod
    def from_yaml(cls, text: str, client: MPIJobClient | None = None) -> MPIJob:
        """Returns the job of a YAML document."""
        manifest = yaml.safe_load(text)
        if not isinstance(manifest, dict) or manifest.get("kind") != "MPIJob":
            raise errors.ValidationError("kind", "the document is not an MPIJob")
        return cls._of(manifest, client)

    @classmethod
    def get(cls, name: str, namespace: str = "default") -> MPIJob:
        """Returns the job from the cluster. Raises NotFoundError."""
        return MPIJobClient(namespace=namespace).get_mpijob(name, namespace)

    @classmethod
    def list(cls, namespace: str = "default", label_selector: str | None = None) -> MPIJobList:
        """Returns the jobs of a namespace."""
        return MPIJobClient(namespace=namespace).list_mpijobs(namespace, label_selector)

    def close(self) -> None:
        """Closes the connections."""
        if self._client_or_none:
            self._client_or_none.close()

    def _repr_html_(self) -> str:
        return display.job_html(self._job)

    def __repr__(self) -> str:
        return f"<MPIJob {self.namespace}/{self.name}: {self.phase}>"


class MPIJobList(list[MPIJob], ResourceFrames):
    """MPIJobs, with a table for notebooks and `to_frame()`."""

    def rows(self) -> list[dict[str, Any]]:
        return [job_row(job._job) for job in self]


class MPIJobClient:
    """Creates, observes and deletes MPIJobs, with the caller's kubeconfig or the pod's identity."""

    def __init__(self, kubeconfig: str | None = None, namespace: str = "default", *, kube: Kube | None = None) -> None:
        self.namespace = namespace
        self._kube = kube or Kube.connect(kubeconfig)
        self._jobs: Jobs[models.MPIJob] = Jobs(self._kube, "MPIJob", VERSION, models.MPIJob)

    def close(self) -> None:
        """Closes the connections."""
        self._kube.close()

    def create_mpijob(
        self,
        name: str | None = None,
        namespace: str | None = None,
        worker_spec: WorkerSpec | None = None,
        launcher_spec: WorkerSpec | None = None,
        mpi_implementation: str = "OpenMPI",
        slots_per_worker: int = 1,
        from_file: str | os.PathLike[str] | None = None,
        from_dict: JSON | None = None,
        dry_run: bool = False,
    ) -> MPIJob:
        """Creates an MPIJob from exactly one of `worker_spec`, `from_file` and `from_dict`.

        With `dry_run` the API server and the admission check the job, and nothing is created.
        """
        if sum(source is not None for source in (worker_spec, from_file, from_dict)) != 1:
            raise errors.ValidationError(
                "worker_spec", "exactly one of worker_spec, from_file and from_dict is required"
            )
        if worker_spec is not None:
            if name is None:
                raise errors.ValidationError("name", "a name is required with worker_spec")
            launcher = launcher_spec or _launcher(worker_spec, worker_spec.command, worker_spec.args)
            namespace = namespace or self.namespace
            manifest = build_manifest(
                name, namespace, worker_spec, launcher, mpi_implementation, slots_per_worker, {}, None
            )
        else:
            manifest = dict(from_dict) if from_dict is not None else yaml.safe_load(Path(from_file or "").read_text())
            metadata = {**manifest.get("metadata", {})}
            metadata["name"] = name or metadata.get("name", "")
            namespace = metadata["namespace"] = namespace or metadata.get("namespace") or self.namespace
            manifest["metadata"] = metadata
            check_name(metadata["name"])
        return MPIJob._of(self._create(manifest, namespace, dry_run=dry_run), self)

    def _create(self, manifest: JSON, namespace: str, *, dry_run: bool = False) -> JSON:
        return self._kube.create(self._jobs.path(namespace), manifest, dry_run=dry_run)

    def from_template(
        self,
        template: str,
        name: str,
        image: str,
        workers: int = 2,
        *,
        command: list[str] | None = None,
        args: list[str] | None = None,
        resources: ResourceSpec | None = None,
        env: dict[str, str] | None = None,
        **settings: Any,
    ) -> MPIJob:
        """Returns an MPIJob with MPI, environment and command of a framework, not created yet.

        `template` is horovod-tensorflow, horovod-pytorch, deepspeed-mpi or intel-mpi-pytorch. The
        other arguments are those of MPIJob, and override the template's.
        """
        if template not in TEMPLATES:
            raise errors.ValidationError("template", f"{template!r} must be one of {', '.join(sorted(TEMPLATES))}")
        chosen = TEMPLATES[template]
        return MPIJob(
            name,
            settings.pop("namespace", self.namespace),
            workers,
            image,
            command or list(chosen.command),
            args,
            resources or ResourceRequirements(gpu=chosen.gpus),
            env={**chosen.env, **(env or {})},
            mpi_implementation=settings.pop("mpi_implementation", chosen.mpi_implementation),
            client=self,
            **settings,
        )

    def get_mpijob(self, name: str, namespace: str | None = None) -> MPIJob:
        """Returns the job. Raises NotFoundError."""
        return MPIJob._of(self._jobs.get_dict(name, namespace or self.namespace), self)

    def list_mpijobs(self, namespace: str | None = None, label_selector: str | None = None) -> MPIJobList:
        """Returns the jobs of a namespace."""
        path = self._jobs.path(namespace or self.namespace)
        items, _ = self._kube.items(path, {"labelSelector": label_selector} if label_selector else None)
        return MPIJobList(MPIJob._of(item, self) for item in items)

    def delete_mpijob(self, name: str, namespace: str | None = None, wait: bool = False, timeout: float = 60) -> None:
        """Deletes the job and its pods. Raises NotFoundError."""
        namespace = namespace or self.namespace
        self._jobs.delete(name, namespace)
        if wait:
            self._jobs.wait_deleted(name, namespace, timeout)


def _launcher(worker: WorkerSpec, command: list[str] | None, args: list[str] | None) -> WorkerSpec:
    """Returns the launcher of a job whose workers run in the same image."""
    return WorkerSpec(
        replicas=1,
        image=worker.image,
        resources=LAUNCHER_RESOURCES,
        command=command,
        args=args,
        env=worker.env,
        volumes=worker.volumes,
        volume_mounts=worker.volume_mounts,
    )


def build_manifest(
    name: str,
    namespace: str,
    worker: WorkerSpec,
    launcher: WorkerSpec,
    mpi_implementation: str,
    slots_per_worker: int,
    policy: JSON,
    labels: dict[str, str] | None,
) -> JSON:
    """Returns the manifest of an MPIJob, or raises ValidationError."""
    check_name(name)
    if worker.replicas < MIN_WORKERS:
        raise errors.ValidationError("workers", f"must be at least {MIN_WORKERS}, not {worker.replicas}")
    if slots_per_worker < 1:
        raise errors.ValidationError("slots_per_worker", f"must be at least 1, not {slots_per_worker}")
    if mpi_implementation not in MPI_IMPLEMENTATIONS:
        raise errors.ValidationError(
            "mpi_implementation", f"{mpi_implementation!r} must be one of {', '.join(MPI_IMPLEMENTATIONS)}"
        )
    if not worker.image or not launcher.image:
        raise errors.ValidationError("image", "an image is required", remedy="It must contain MPI and the program")
    # The agent is the SSH server of a worker: a worker has no command.
    workers = WorkerSpec(**{**worker.__dict__, "command": None, "args": None})
    metadata: JSON = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = labels
    return {
        "apiVersion": f"kubeflow.org/{VERSION}",
        "kind": "MPIJob",
        "metadata": metadata,
        "spec": {
            "slotsPerWorker": slots_per_worker,
            "mpiImplementation": mpi_implementation,
            "runPolicy": {key: value for key, value in policy.items() if value is not None},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": launcher.pod_template("launcher")},
                "Worker": {"replicas": worker.replicas, "template": workers.pod_template("worker")},
            },
        },
    }

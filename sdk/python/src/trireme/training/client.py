# SPDX-License-Identifier: Apache-2.0
"""The client of TrainJobs."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trireme import _progress, errors
from trireme._frames import ResourceFrames
from trireme._jobs import Event, Jobs, check_name
from trireme._kube import JSON, Kube
from trireme._models import (
    ClusterTrainingRuntime,
    ResourceRequirements,
    TrainingRuntime,
    TrainJob,
    TrainJobStatus,
)
from trireme._objects import Object

VERSION = "v2alpha1"
MAX_NODES = 64
LABEL_FRAMEWORK = "training.kubeflow.org/framework"
DEFAULT_RUNTIME = "mpi-openmpi-cpu"
# The operator limits names so that those of pods fit.
MAX_NAME = 44

Resources = ResourceRequirements | Mapping[str, Any]


@dataclass
class EnvVar:
    """A variable of the environment: a value, or where to read it from."""

    name: str
    value: str | None = None
    value_from: dict[str, Any] | None = None

    def to_dict(self) -> JSON:
        both = {"name": self.name, "value": self.value, "valueFrom": self.value_from}
        return {key: value for key, value in both.items() if value is not None}


Environment = Mapping[str, str] | Sequence[EnvVar | JSON]


@dataclass
class Runtime:
    """A runtime: the templates that jobs are made from."""

    name: str
    kind: str
    namespace: str | None
    framework: str | None
    mpi_implementation: str | None
    num_nodes: int | None
    slots_per_worker: int | None
    image: str | None = None
    launcher_command: list[str] = field(default_factory=list)
    launcher_resources: JSON = field(default_factory=dict)
    worker_resources: JSON = field(default_factory=dict)

    @classmethod
    def of(cls, item: TrainingRuntime | ClusterTrainingRuntime) -> Runtime:
        policy = item.spec.ml_policy
        template = item.spec.template.spec if item.spec.template else None
        jobs = {job.name: job.template for job in template.replicated_jobs} if template else {}

        def container(role: str) -> JSON:
            containers: list[JSON] = jobs.get(role, {}).get("spec", {}).get("containers", [])
            return containers[0] if containers else {}

        launcher, worker = container("launcher"), container("worker")
        return cls(
            name=item.metadata.name,
            kind=item.kind or type(item).__name__,
            namespace=item.metadata.namespace or None,
            framework=item.metadata.labels.get(LABEL_FRAMEWORK),
            mpi_implementation=policy.mpi_implementation if policy else None,
            num_nodes=policy.num_nodes if policy else None,
            slots_per_worker=policy.slots_per_worker if policy else None,
            image=launcher.get("image"),
            launcher_command=[*launcher.get("command", []), *launcher.get("args", [])],
            launcher_resources=launcher.get("resources", {}),
            worker_resources=worker.get("resources", {}),
        )


@dataclass
class PodUsage:
    """CPU and memory that a pod uses now."""

    pod: str
    cpu: float
    memory: int


@dataclass
class JobMetrics(ResourceFrames):
    """The use of resources, and what the program reported with `trireme.report`."""

    pods: list[PodUsage] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        return self.progress


class JobList(list[TrainJob], ResourceFrames):
    """TrainJobs, with a table for notebooks and `to_frame()`."""

    def rows(self) -> list[dict[str, Any]]:
        return [job_row(job) for job in self]


def job_row(job: Any) -> dict[str, Any]:
    """Returns the columns of a job in lists."""
    status = job.status
    return {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "phase": status.phase or "Pending",
        "workers": status.ready_workers,
        "reason": status.failure_reason,
        "created": job.metadata.creation_timestamp,
        "duration": status.duration,
    }


class TrainingClient:
    """Creates, observes and deletes TrainJobs, with the caller's kubeconfig or the pod's identity.

    Without arguments it connects as kubectl does, and in a pod without kubeconfig with the pod's
    service account.
    """

    def __init__(
        self,
        config_file: str | None = None,
        in_cluster: bool = False,
        *,
        context: str | None = None,
        kube: Kube | None = None,
    ) -> None:
        self._kube = kube or Kube.connect(config_file, in_cluster, context)
        self._jobs: Jobs[TrainJob] = Jobs(self._kube, "TrainJob", VERSION, TrainJob)

    def close(self) -> None:
        """Closes the connections."""
        self._kube.close()

    def __enter__(self) -> TrainingClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create_mpi_job(
        self,
        name: str,
        runtime: str,
        num_nodes: int,
        image: str,
        command: list[str] | None = None,
        args: list[str] | None = None,
        resources_per_node: Resources | None = None,
        env: Environment | None = None,
        volumes: list[JSON] | None = None,
        volume_mounts: list[JSON] | None = None,
        namespace: str = "default",
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        *,
        slots_per_worker: int | None = None,
        launcher_resources: Resources | None = None,
        initializer: JSON | None = None,
        network_policy: str | None = None,
        active_deadline_seconds: int | None = None,
        ttl_seconds_after_finished: int | None = None,
        backoff_limit: int | None = None,
        suspend: bool | None = None,
        dry_run: bool = False,
        resources: Resources | None = None,
    ) -> TrainJob:
        """Creates a TrainJob and returns it with its initial status.

        `resources_per_node` is either `{"cpu": 4, "memory": "16Gi", "nvidia.com/gpu": 1}`, which are
        requests and limits, or has `requests` and `limits`; `resources` is another name of it. With
        `dry_run` the API server and the admission check the job, and nothing is created.

        Raises ValidationError (a ValueError) before anything is sent, RuntimeUnavailableError (a
        RuntimeError) if the runtime does not exist or is not for MPI, and K8sApiException.
        """
        manifest = build_train_job(
            name,
            num_nodes,
            image,
            command,
            args,
            either("resources", resources, "resources_per_node", resources_per_node),
            env,
            volumes,
            volume_mounts,
            namespace,
            labels,
            annotations,
            slots_per_worker=slots_per_worker,
            launcher_resources=launcher_resources,
            initializer=initializer,
            network_policy=network_policy,
            active_deadline_seconds=active_deadline_seconds,
            ttl_seconds_after_finished=ttl_seconds_after_finished,
            backoff_limit=backoff_limit,
            suspend=suspend,
        )
        found = self.find_runtime(runtime, namespace)
        manifest["spec"]["runtimeRef"] = {"apiGroup": "kubeflow.org", "kind": found.kind, "name": found.name}
        return self._jobs.create(namespace, manifest, dry_run=dry_run)

    def create_legacy_mpi_job(self, name: str, namespace: str = "default", **settings: Any) -> Any:
        """Creates an MPIJob. Deprecated since 2.0.0, removed in 3.0.0: use create_mpi_job.

        The settings are those of `trireme.mpijob.MPIJob`.
        """
        warnings.warn(
            "create_legacy_mpi_job is deprecated since 2.0.0 and will be removed in 3.0.0: use create_mpi_job, "
            "or trireme.mpijob.MPIJob",
            DeprecationWarning,
            stacklevel=2,
        )
        from trireme.mpijob import MPIJob, MPIJobClient

        return MPIJob(name, namespace, client=MPIJobClient(kube=self._kube), **settings).create()

    def find_runtime(self, name: str, namespace: str = "default") -> Runtime:
        """Returns the runtime of the namespace or, if it has none of that name, of the cluster."""
        found = self._runtime(
            f"/apis/kubeflow.org/{VERSION}/namespaces/{namespace}/trainingruntimes/{name}", TrainingRuntime
        )
        found = found or self._runtime(
            f"/apis/kubeflow.org/{VERSION}/clustertrainingruntimes/{name}", ClusterTrainingRuntime
        )
        if found is None:
            raise errors.RuntimeUnavailableError(
                f"Runtime {name} not found in namespace {namespace}",
                reason="RuntimeNotFound",
                remedy="list_runtimes() shows the runtimes that exist",
            )
        if not found.mpi_implementation:
            raise errors.RuntimeUnavailableError(
                f"Runtime {name} does not support MPI",
                reason="RuntimeNotMPI",
                remedy="Use a runtime whose mlPolicy has mpiImplementation; list_runtimes() shows them",
            )
        return found

    def _runtime(self, path: str, model: type[TrainingRuntime] | type[ClusterTrainingRuntime]) -> Runtime | None:
        try:
            return Runtime.of(model.from_dict(self._kube.get(path)))
        except errors.NotFoundError:
            return None

    def get_job(self, name: str, namespace: str = "default") -> TrainJob:
        """Returns the job. Raises NotFoundError."""
        return self._jobs.get(name, namespace)

    def get_job_status(self, name: str, namespace: str = "default") -> TrainJobStatus:
        """Returns the status: among others phase, launcher_ready and ready_worker_count."""
        return self.get_job(name, namespace).status

    def wait_for_job_completion(
        self,
        name: str,
        namespace: str = "default",
        timeout: float | None = None,
        polling_interval: float = 10,
    ) -> TrainJob:
        """Waits until the job has succeeded or failed, and returns it.

        It watches the job. Only for callers who may not watch, it reads it every `polling_interval`
        seconds. Raises WaitTimeoutError (a TimeoutError); the job then continues.
        """
        return self._jobs.wait(name, namespace, timeout, polling_interval)

    def stream_job_events(self, name: str, namespace: str = "default") -> Iterator[Event]:
        """Yields the events of the job and its pods, until the job has finished."""
        return self._jobs.events(name, namespace)

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
        """Returns the logs of the launcher and the workers, or with `follow` an iterator of lines.

        `pod_type` is all, launcher, worker or initializer, `pod_index` a worker's number. The text of
        several pods has a heading for each; their lines begin with the pod's name.
        """
        texts, lines = self._jobs.logs(
            name,
            namespace,
            pod_type,
            pod_index,
            tail_lines=tail_lines,
            since_seconds=since_seconds,
            follow=follow,
        )
        if follow:
            return lines
        if len(texts) == 1:
            return next(iter(texts.values()))
        return "\n".join(f"==> {pod} <==\n{text}" for pod, text in texts.items())

    def delete_job(
        self,
        name: str,
        namespace: str = "default",
        grace_period_seconds: int = 30,
        *,
        grace_period: int | None = None,
    ) -> None:
        """Deletes the job and its pods. `grace_period` is another name of `grace_period_seconds`.

        Raises NotFoundError.
        """
        self._jobs.delete(name, namespace, grace_period_seconds if grace_period is None else grace_period)

    def list_jobs(
        self,
        namespace: str = "default",
        runtime: str | None = None,
        status: str | None = None,
        label_selector: str | None = None,
    ) -> JobList:
        """Returns the jobs of a namespace, or of all with `namespace=""`, with that runtime and phase."""
        jobs = self._jobs.all(namespace, label_selector)
        return JobList(
            job
            for job in jobs
            if (status is None or (job.status.phase or "Pending") == status)
            and (runtime is None or (job.spec.runtime_ref and job.spec.runtime_ref.name == runtime))
        )

    def get_job_metrics(self, name: str, namespace: str = "default", time_range: str = "1h") -> JobMetrics:
        """Returns the resources that the pods use now, and the progress that the program reported.

        The use is empty where the cluster has no metrics API. `time_range` limits the progress, such
        as 15m or 2h.
        """
        seconds = duration_seconds(time_range)
        self.get_job(name, namespace)
        usage = []
        for metrics in self._jobs.pod_metrics(name, namespace):
            used = [c["usage"] for c in metrics["containers"]]
            cpu, memory = (sum(quantity(c[key]) for c in used) for key in ("cpu", "memory"))
            usage.append(PodUsage(metrics["metadata"]["name"], cpu, int(memory)))
        return JobMetrics(pods=usage, progress=self._progress(name, namespace, seconds))

    def _progress(self, name: str, namespace: str, seconds: int) -> list[dict[str, Any]]:
        progress = []
        for pod in self._jobs.pods(name, namespace, "launcher"):
            query = {"sinceSeconds": seconds, "timestamps": "true"}
            for line in self._jobs.log(pod["metadata"]["name"], namespace, query).splitlines():
                stamp, _, text = line.partition(" ")
                if report := _progress.parse(text):
                    progress.append({"time": datetime.fromisoformat(stamp[:19] + "+00:00"), **report})
        return progress

    def list_runtimes(self, namespace: str = "default", framework: str | None = None) -> list[Runtime]:
        """Returns the runtimes of the namespace and of the cluster, those for a framework if one is named."""
        kinds: list[tuple[str, type[TrainingRuntime] | type[ClusterTrainingRuntime]]] = [
            (f"namespaces/{namespace}/trainingruntimes", TrainingRuntime),
            ("clustertrainingruntimes", ClusterTrainingRuntime),
        ]
        found = []
        for path, model in kinds:
            items, _ = self._kube.items(f"/apis/kubeflow.org/{VERSION}/{path}")
            found += [Runtime.of(model.from_dict({"kind": model.__name__, **item})) for item in items]
        return [runtime for runtime in found if framework is None or runtime.framework == framework]


def either(alias: str, other: Any, name: str, value: Any) -> Any:
    """Returns the value of an argument that has two names."""
    if other is not None and value is not None:
        raise errors.ValidationError(alias, f"is another name of {name}: only one of them is possible")
    return value if other is None else other


def build_train_job(
    name: str,
    num_nodes: int | None,
    image: str,
    command: list[str] | None,
    args: list[str] | None,
    resources_per_node: Resources | None,
    env: Environment | None,
    volumes: list[JSON] | None,
    volume_mounts: list[JSON] | None,
    namespace: str,
    labels: dict[str, str] | None,
    annotations: dict[str, str] | None,
    *,
    slots_per_worker: int | None = None,
    launcher_resources: Resources | None = None,
    initializer: JSON | None = None,
    network_policy: str | None = None,
    active_deadline_seconds: int | None = None,
    ttl_seconds_after_finished: int | None = None,
    backoff_limit: int | None = None,
    suspend: bool | None = None,
) -> JSON:
    """Returns the manifest of a TrainJob without its runtime, or raises ValidationError."""
    check_name(name, MAX_NAME)
    if num_nodes is not None and (isinstance(num_nodes, bool) or not 1 <= num_nodes <= MAX_NODES):
        raise errors.ValidationError("num_nodes", f"numNodes must be between 1 and {MAX_NODES}, not {num_nodes}")
    if slots_per_worker is not None and slots_per_worker < 1:
        raise errors.ValidationError("slots_per_worker", f"must be at least 1, not {slots_per_worker}")
    if not image:
        raise errors.ValidationError("image", "an image is required", remedy="It must contain MPI and the program")
    if isinstance(command, str) or isinstance(args, str):
        raise errors.ValidationError(
            "command", "command and args are lists of strings, such as ['python3', 'train.py']"
        )
    trainer = {
        "numNodes": num_nodes,
        "image": image,
        "command": command,
        "args": args,
        "env": environment(env),
        "volumes": volumes,
        "volumeMounts": volume_mounts,
        "resourcesPerNode": resources(resources_per_node, "resources_per_node"),
        "slotsPerWorker": slots_per_worker,
    }
    launcher = resources(launcher_resources, "launcher_resources")
    spec = {
        "trainer": {key: value for key, value in trainer.items() if value is not None},
        "launcher": {"resources": launcher} if launcher else None,
        "initializer": initializer,
        "networkPolicy": {"template": network_policy} if network_policy else None,
        "activeDeadlineSeconds": active_deadline_seconds,
        "ttlSecondsAfterFinished": ttl_seconds_after_finished,
        "backoffLimit": backoff_limit,
        "suspend": suspend,
    }
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {
        "apiVersion": f"kubeflow.org/{VERSION}",
        "kind": "TrainJob",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def environment(env: Environment | None) -> list[JSON] | None:
    """Returns variables as the API has them."""
    if env is None:
        return None
    if isinstance(env, Mapping):
        return [{"name": name, "value": str(value)} for name, value in env.items()]
    return [item.to_dict() if isinstance(item, EnvVar) else dict(item) for item in env]


QUANTITY = re.compile(r"^[0-9]+(\.[0-9]+)?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?$")


def resources(value: Any, name: str) -> JSON | None:
    """Returns requests and limits as the API has them. Flat values are both."""
    if value is None:
        return None
    data = value.to_dict() if isinstance(value, Object) else _resource_dict(value)
    if not set(data) & {"requests", "limits", "claims"}:
        data = {"requests": dict(data), "limits": dict(data)}
    for part in ("requests", "limits"):
        for key, amount in data.get(part, {}).items():
            if not QUANTITY.match(str(amount)):
                raise errors.ValidationError(
                    f"{name}.{part}.{key}", f"{amount!r} is not a quantity such as 4, 500m or 16Gi"
                )
    return {
        part: {key: str(amount) for key, amount in amounts.items()} if isinstance(amounts, dict) else amounts
        for part, amounts in data.items()
    }


def _resource_dict(value: Any) -> JSON:
    if hasattr(value, "to_resource_requirements"):
        return dict(value.to_resource_requirements())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return dict(value)


def duration_seconds(text: str) -> int:
    """Returns the seconds of a duration such as 90s, 15m or 2h."""
    match = re.fullmatch(r"([0-9]+)([smhd])", text)
    if not match:
        raise errors.ValidationError("time_range", f"{text!r} is not a duration such as 90s, 15m, 1h or 2d")
    return max(1, int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]])


UNITS = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def quantity(value: str | int) -> float:
    """Returns a quantity of Kubernetes as a number."""
    match = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(value))
    if not match or match[2] not in {**UNITS, **BINARY}:
        raise errors.ValidationError("quantity", f"{value!r} is not a quantity such as 4, 500m or 16Gi")
    return float(match[1]) * {**UNITS, **BINARY}[match[2]]

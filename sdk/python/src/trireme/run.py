# SPDX-License-Identifier: Apache-2.0
"""Runs a function on the ranks of a job, and returns their results."""

from __future__ import annotations

import base64
import logging
import os
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from trireme import _local, display, errors
from trireme._aio import asynchronous
from trireme._frames import html_table
from trireme._jobs import Jobs
from trireme._kube import JSON, Kube
from trireme._local import LocalJob
from trireme._models import TrainJob
from trireme._outcomes import count, result_limits
from trireme._payload import Payload, allocation, payload
from trireme.job import LABEL_ARRAY, Job, JobArray, Run, RunList
from trireme.training.client import (
    DEFAULT_RUNTIME,
    VERSION,
    Environment,
    Resources,
    Runtime,
    TrainingClient,
    build_train_job,
    quantity,
)

if TYPE_CHECKING:
    from trireme._allocation import LocalRanks, Ranks

log = logging.getLogger("trireme")

FOLDER = "/etc/trireme/run"
LABEL_RUN = "training.kubeflow.org/run"
LABEL_RANKS = "training.kubeflow.org/ranks"
TAG_OUTPUT = "training.kubeflow.org/tag-output"
ENDED_ALLOCATION_SECONDS = 300


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
        nodes, slots = count("nodes", nodes), count("slots", slots)
        ranks = self.local or nodes * slots
        limit, most = result_limits(max_result_bytes, ranks)
        packed = payload(func, args, kwargs, code, limit, most)
        if self.local and preflight:
            _local.mpirun_path()
            _local.variables_of(env)
            return Plan({}, packed.size, {"ranks": self.local})
        if self.local:
            return LocalJob(packed, self.local, env)
        chosen = self._training.find_runtime(runtime or self.runtime, self.namespace)
        manifest = self._manifest(
            packed,
            chosen,
            command=["python3", f"{FOLDER}/run.pyz"],
            name=name or _job_name(func),
            num_nodes=nodes,
            slots_per_worker=slots,
            image=image,
            resources_per_node=resources,
            launcher_resources=launcher_resources,
            env=env,
            volumes=volumes,
            volume_mounts=volume_mounts,
            labels=labels,
            annotations=annotations,
            active_deadline_seconds=max_seconds,
            ttl_seconds_after_finished=delete_after_seconds,
        )
        if preflight:
            return self._plan(manifest, packed, chosen)
        return self._submit(manifest, packed, ranks)

    def _manifest(
        self,
        packed: Payload,
        runtime: Runtime,
        *,
        name: str,
        image: str | None,
        volumes: list[JSON] | None,
        volume_mounts: list[JSON] | None,
        labels: dict[str, str] | None,
        annotations: dict[str, str] | None,
        **settings: Any,
    ) -> JSON:
        """Returns a TrainJob whose pods have the payload."""
        # The user of the containers is not known. An allocation has a program among the files.
        secret = {"name": "run-payload", "secret": {"secretName": _secret_name(name), "defaultMode": 0o555}}
        mount = {"name": "run-payload", "mountPath": FOLDER, "readOnly": True}
        manifest = build_train_job(
            args=None,
            name=name,
            namespace=self.namespace,
            image=image or self.image or os.environ.get("TRIREME_IMAGE") or runtime.image or "",
            volumes=[*(volumes or []), secret],
            volume_mounts=[*(volume_mounts or []), mount],
            labels={**(labels or {}), LABEL_RUN: packed.run},
            annotations={TAG_OUTPUT: "true", **(annotations or {})},
            **settings,
        )
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

        nodes, slots = count("nodes", nodes), count("slots", slots)
        max_idle_seconds = count("max_idle_seconds", max_idle_seconds)
        if self.local:
            _local.mpirun_path()
            return LocalRanks(self)
        self._need_exec()
        chosen = self._training.find_runtime(runtime or self.runtime, self.namespace)
        mpirun, flags = mpirun_of(chosen.launcher_command, nodes * slots)
        packed = allocation(mpirun, max_idle_seconds)
        manifest = self._manifest(
            packed,
            chosen,
            command=[f"{FOLDER}/mpirun", *flags],
            name=name or f"ranks-{secrets.token_hex(3)}",
            num_nodes=nodes,
            slots_per_worker=slots,
            image=image,
            resources_per_node=resources,
            launcher_resources=launcher_resources,
            env=env,
            volumes=volumes,
            volume_mounts=volume_mounts,
            labels=labels,
            annotations=annotations,
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

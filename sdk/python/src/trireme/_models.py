# SPDX-License-Identifier: Apache-2.0
"""The objects of the API as dataclasses. Generated from the CRDs: run tools/generate_models.py."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from trireme._objects import JobObject, JobStatusMixin, Object, ObjectMeta


@dataclass
class SecretRef(Object):
    """secretRef names a Secret of the job's namespace whose keys become the environment of the download,
    such as AWS_ACCESS_KEY_ID or HF_TOKEN."""

    name: str | None = field(default=None, metadata={"json": "name"})
    """name of the Secret."""


@dataclass
class Source(Object):
    """dataset is fetched to /workspace/dataset."""

    secret_ref: SecretRef | None = field(default=None, metadata={"json": "secretRef"})
    """secretRef names a Secret of the job's namespace whose keys become the environment of the download,
    such as AWS_ACCESS_KEY_ID or HF_TOKEN."""
    storage_uri: str | None = field(default=None, metadata={"json": "storageUri"})
    """storageUri is the location: s3://bucket/path, hf://owner/name or pvc://claim/path."""


@dataclass
class InitializerStorage(Object):
    """storage is the volume for both. Launcher and workers mount it at /workspace. Required with a
    dataset or a model."""

    claim_name: str | None = field(default=None, metadata={"json": "claimName"})
    """claimName is the name of an existing PersistentVolumeClaim."""
    size: str | int | None = field(default=None, metadata={"json": "size"})
    """size of a new PersistentVolumeClaim, which is deleted with the job. Its access mode is
    ReadWriteMany if the job has more than one worker."""
    storage_class_name: str | None = field(default=None, metadata={"json": "storageClassName"})
    """storageClassName of the new PersistentVolumeClaim. Default: the cluster's default class."""


@dataclass
class InitializerSpec(Object):
    """initializer fetches a dataset and a model before any other pod is created."""

    dataset: Source | None = field(default=None, metadata={"json": "dataset"})
    """dataset is fetched to /workspace/dataset."""
    model: Source | None = field(default=None, metadata={"json": "model"})
    """model is fetched to /workspace/model."""
    storage: InitializerStorage | None = field(default=None, metadata={"json": "storage"})
    """storage is the volume for both. Launcher and workers mount it at /workspace. Required with a
    dataset or a model."""


@dataclass
class LauncherSpec(Object):
    """launcher has the settings of the pod that runs mpirun."""

    resources: ResourceRequirements | None = field(default=None, metadata={"json": "resources"})
    """resources of the launcher. Default: those of the runtime's launcher, else 2 CPUs and 4Gi of memory
    unless the operator is configured otherwise."""


@dataclass
class RuntimeRef(Object):
    """runtimeRef names the runtime of the job. The job uses the runtime as it was when the job was
    created."""

    api_group: str | None = field(default=None, metadata={"json": "apiGroup"})
    """apiGroup of the runtime. Default, and only value: kubeflow.org."""
    kind: Literal["TrainingRuntime", "ClusterTrainingRuntime"] | None = field(default=None, metadata={"json": "kind"})
    """kind of the runtime: ClusterTrainingRuntime, or TrainingRuntime in the job's namespace. Immutable."""
    name: str | None = field(default=None, metadata={"json": "name"})
    """name of the runtime. Immutable."""


@dataclass
class ResourceRequirements(Object):
    """resources of the launcher. Default: those of the runtime's launcher, else 2 CPUs and 4Gi of memory
    unless the operator is configured otherwise."""

    claims: list[dict[str, Any]] = field(default_factory=list, metadata={"json": "claims"})
    """Claims lists the names of resources, defined in spec.resourceClaims, that are used by this
    container. This field depends on the DynamicResourceAllocation feature gate. This field is immutable.
    It can only be set for containers."""
    limits: dict[str, Any] = field(default_factory=dict, metadata={"json": "limits"})
    """Limits describes the maximum amount of compute resources allowed. More info:
    https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/"""
    requests: dict[str, Any] = field(default_factory=dict, metadata={"json": "requests"})
    """Requests describes the minimum amount of compute resources required. If Requests is omitted for a
    container, it defaults to Limits if that is explicitly specified, otherwise to an implementation-
    defined value. Requests cannot exceed Limits. More info:
    https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/"""


@dataclass
class TrainerSpec(Object):
    """trainer is the training itself: image, command, and the workers it runs on."""

    args: list[str] = field(default_factory=list, metadata={"json": "args"})
    """args of the command."""
    command: list[str] = field(default_factory=list, metadata={"json": "command"})
    """command of the launcher. A command that starts with mpirun, mpiexec, mpiexec.hydra or horovodrun
    runs unchanged; for any other command the operator adds mpirun in front. Default: the runtime's."""
    env: list[dict[str, Any]] = field(default_factory=list, metadata={"json": "env"})
    """env is added to launcher and workers, and overrides the runtime's."""
    image: str | None = field(default=None, metadata={"json": "image"})
    """image of launcher and workers. It must contain MPI and the training program. It needs no SSH
    server."""
    num_nodes: int | None = field(default=None, metadata={"json": "numNodes"})
    """numNodes is the number of workers. The launcher is a further pod. From 1 to 64 unless the operator
    is configured otherwise, and within the runtime's constraints. Default: the runtime's."""
    progress_pattern: str | None = field(default=None, metadata={"json": "progressPattern"})
    """progressPattern is a regular expression (RE2) that finds the progress of the training in the lines
    of its output: its first group is the step, a second group the number of steps, for example epoch
    (\\d+) of (\\d+). Default: the runtime's. Lines of the form trireme: {"step": 10, "of": 100} need no
    pattern."""
    resources_per_node: ResourceRequirements | None = field(default=None, metadata={"json": "resourcesPerNode"})
    """resourcesPerNode are the resources of each worker. Default: those of the runtime's worker. A limit
    without a request is also the request."""
    slots_per_worker: int | None = field(default=None, metadata={"json": "slotsPerWorker"})
    """slotsPerWorker is the number of MPI processes per worker, usually the number of its GPUs. From 1
    to 16 unless the operator is configured otherwise. Default: the runtime's."""
    volume_mounts: list[dict[str, Any]] = field(default_factory=list, metadata={"json": "volumeMounts"})
    """volumeMounts are added to launcher and workers. They name volumes of the job or of the runtime."""
    volumes: list[dict[str, Any]] = field(default_factory=list, metadata={"json": "volumes"})
    """volumes are added to launcher and workers."""


@dataclass
class TrainJobSpec(Object):
    """spec is the desired state of the TrainJob. After creation only suspend can be changed."""

    active_deadline_seconds: int | None = field(default=None, metadata={"json": "activeDeadlineSeconds"})
    """activeDeadlineSeconds is the maximum run time: a job that runs for longer fails. It is counted
    from status.startTime, and starts again after a suspension. At least 1. Default: no limit."""
    backoff_limit: int | None = field(default=None, metadata={"json": "backoffLimit"})
    """backoffLimit is how many times the whole job, launcher and workers, is restarted after a failure.
    Default: 0."""
    clean_pod_policy: Literal["Running", "All", "None"] | None = field(default=None, metadata={"json": "cleanPodPolicy"})
    """cleanPodPolicy selects the pods that are deleted when the job has finished: Running deletes the
    pods that still run, All deletes every pod, None deletes no worker. Default: Running."""
    hang: Hang | None = field(default=None, metadata={"json": "hang"})
    """hang sets what happens if the ranks make no progress. Default: the runtime's."""
    initializer: InitializerSpec | None = field(default=None, metadata={"json": "initializer"})
    """initializer fetches a dataset and a model before any other pod is created."""
    launcher: LauncherSpec | None = field(default=None, metadata={"json": "launcher"})
    """launcher has the settings of the pod that runs mpirun."""
    managed_by: str | None = field(default=None, metadata={"json": "managedBy"})
    """managedBy names the controller of the job: kubeflow.org/trainjob-controller, or an empty value, is
    this operator. MultiKueue does not run TrainJobs. Immutable."""
    network_policy: NetworkPolicy | None = field(default=None, metadata={"json": "networkPolicy"})
    """networkPolicy creates a NetworkPolicy that isolates the job. Default: none."""
    require_all_hosts: bool | None = field(default=None, metadata={"json": "requireAllHosts"})
    """requireAllHosts makes the job fail if its command succeeds without having used every worker.
    Default: true where the operator adds mpirun to the command, else false."""
    runtime_ref: RuntimeRef | None = field(default=None, metadata={"json": "runtimeRef"})
    """runtimeRef names the runtime of the job. The job uses the runtime as it was when the job was
    created."""
    suspend: bool | None = field(default=None, metadata={"json": "suspend"})
    """suspend stops the job and deletes its pods, and keeps the job. Setting it back to false starts the
    job from its beginning. Default: false."""
    trainer: TrainerSpec | None = field(default=None, metadata={"json": "trainer"})
    """trainer is the training itself: image, command, and the workers it runs on."""
    ttl_seconds_after_finished: int | None = field(default=None, metadata={"json": "ttlSecondsAfterFinished"})
    """ttlSecondsAfterFinished deletes the job this many seconds after it has finished. Default: the job
    is kept."""


@dataclass
class Condition(Object):
    """Condition contains details for one aspect of the current state of this API Resource."""

    last_transition_time: datetime | None = field(default=None, metadata={"json": "lastTransitionTime"})
    """lastTransitionTime is the last time the condition transitioned from one status to another. This
    should be when the underlying condition changed. If that is not known, then using the time when the
    API field changed is acceptable."""
    message: str | None = field(default=None, metadata={"json": "message"})
    """message is a human readable message indicating details about the transition. This may be an empty
    string."""
    observed_generation: int | None = field(default=None, metadata={"json": "observedGeneration"})
    """observedGeneration represents the .metadata.generation that the condition was set based upon. For
    instance, if .metadata.generation is currently 12, but the .status.conditions[x].observedGeneration
    is 9, the condition is out of date with respect to the current state of the instance."""
    reason: str | None = field(default=None, metadata={"json": "reason"})
    """reason contains a programmatic identifier indicating the reason for the condition's last
    transition. Producers of specific condition types may define expected values and meanings for this
    field, and whether the values are considered a guaranteed API. The value should be a CamelCase
    string. This field may not be empty."""
    status: Literal["True", "False", "Unknown"] | None = field(default=None, metadata={"json": "status"})
    """status of the condition, one of True, False, Unknown."""
    type: str | None = field(default=None, metadata={"json": "type"})
    """type of condition in CamelCase or in foo.example.com/CamelCase."""


@dataclass
class Odd(Object):
    """OddRank is a rank that differs from the others."""

    doing: str | None = field(default=None, metadata={"json": "doing"})
    """doing is what the rank does: Computing, SpinningInMPI, Sleeping or Stopped. It is empty if that is
    not known."""
    host: str | None = field(default=None, metadata={"json": "host"})
    """host that the rank runs on, as the hostfile names it."""
    rank: int | None = field(default=None, metadata={"json": "rank"})
    """rank of the process in MPI_COMM_WORLD."""
    waits_for: str | None = field(default=None, metadata={"json": "waitsFor"})
    """waitsFor is the wait channel of the kernel that the rank sleeps in, or the peer of the connection
    that it waits for."""


@dataclass
class Metrics(Object):
    """TrainerMetric is a value that a training reports."""

    name: str | None = field(default=None, metadata={"json": "name"})
    """name of the metric, at most 64 characters."""
    value: str | None = field(default=None, metadata={"json": "value"})
    """value of the metric as text, at most 64 characters."""


@dataclass
class TrainJobStatus(JobStatusMixin):
    """status is the observed state of the job."""

    completion_time: datetime | None = field(default=None, metadata={"json": "completionTime"})
    """completionTime is when the job succeeded or failed."""
    conditions: list[Condition] = field(default_factory=list, metadata={"json": "conditions"})
    """conditions of the job: GangScheduling, LauncherReady, WorkersReady, TrainingComplete, Suspended,
    Failed, Stalled."""
    duration: str | None = field(default=None, metadata={"json": "duration"})
    """duration is the time from startTime to completionTime, such as 5m30s. It is set when the job has
    finished."""
    failed_process: FailedProcess | None = field(default=None, metadata={"json": "failedProcess"})
    """failedProcess is the process that failed, with its last output. It is set if the launcher's output
    names the process."""
    failure_cause: str | None = field(default=None, metadata={"json": "failureCause"})
    """failureCause is what Kubernetes reports for the pod that failed, such as OOMKilled, Evicted or
    ImagePullBackOff, or Stalled if the ranks made no progress. It is empty where no pod failed."""
    failure_message: str | None = field(default=None, metadata={"json": "failureMessage"})
    """failureMessage names the pod or rank that failed, the cause, and what to do."""
    failure_reason: Literal["GangSchedulingTimeout", "LauncherFailed", "WorkerFailed", "SSHConnectionFailed", "MPIInitializationFailed", "TrainingError", "ResourceQuotaExceeded"] | None = field(default=None, metadata={"json": "failureReason"})
    """failureReason is the root cause of the failure."""
    launcher_pod_status: PodStatus | None = field(default=None, metadata={"json": "launcherPodStatus"})
    """launcherPodStatus is the state of the launcher's pod."""
    observed_generation: int | None = field(default=None, metadata={"json": "observedGeneration"})
    """observedGeneration is the generation of the job that this status describes."""
    phase: Literal["Pending", "Running", "Succeeded", "Failed"] | None = field(default=None, metadata={"json": "phase"})
    """phase is the summary of the status: Pending, Running, Succeeded or Failed. Succeeded and Failed
    are final."""
    quota_wait: QuotaWait | None = field(default=None, metadata={"json": "quotaWait"})
    """quotaWait is set while a ResourceQuota of the namespace refuses pods of the job and the job waits
    for free quota."""
    ranks: Ranks | None = field(default=None, metadata={"json": "ranks"})
    """ranks summarizes the MPI processes of the job, as its agents see them."""
    ready_worker_count: int | None = field(default=None, metadata={"json": "readyWorkerCount"})
    """readyWorkerCount is the number of workers that are ready."""
    ready_workers: str | None = field(default=None, metadata={"json": "readyWorkers"})
    """readyWorkers is the number of ready workers and of all workers, such as 3/4."""
    restart: Restart | None = field(default=None, metadata={"json": "restart"})
    """restart is set after the job was restarted because of a failure, or while a restart is due."""
    runtime_digest: str | None = field(default=None, metadata={"json": "runtimeDigest"})
    """runtimeDigest identifies the runtime that the job runs with, as sha256: and 64 hexadecimal digits.
    Later changes of the runtime do not change it. The snapshot of that runtime is the ControllerRevision
    trireme-runtime- followed by the first 32 of these digits."""
    start_time: datetime | None = field(default=None, metadata={"json": "startTime"})
    """startTime is when every pod was scheduled."""
    timeline: list[TimelineEntry] = field(default_factory=list, metadata={"json": "timeline"})
    """timeline is when the job reached each step."""
    trainer_status: TrainerStatus | None = field(default=None, metadata={"json": "trainerStatus"})
    """trainerStatus is the progress that the training reports."""
    worker_count: int | None = field(default=None, metadata={"json": "workerCount"})
    """workerCount is the number of workers that the job has."""
    worker_pod_statuses: list[PodStatus] = field(default_factory=list, metadata={"json": "workerPodStatuses"})
    """workerPodStatuses is the state of each worker's pod."""


@dataclass
class TrainJob(JobObject):
    """TrainJob runs a training over MPI on several workers, with the pod templates of a runtime. Its
    launcher and its workers start together or not at all."""

    api_version: str | None = field(default=None, metadata={"json": "apiVersion"})
    """APIVersion defines the versioned schema of this representation of an object. Servers should
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"""
    kind: str | None = field(default=None, metadata={"json": "kind"})
    """Kind is a string value representing the REST resource this object represents. Servers may infer
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info:
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"""
    metadata: ObjectMeta = field(default_factory=ObjectMeta, metadata={"json": "metadata"})
    """Name, namespace, labels and annotations."""
    spec: TrainJobSpec = field(default_factory=lambda: TrainJobSpec(), metadata={"json": "spec"})
    """spec is the desired state of the TrainJob. After creation only suspend can be changed."""
    status: TrainJobStatus = field(default_factory=lambda: TrainJobStatus(), metadata={"json": "status"})
    """status is the observed state of the job."""


@dataclass
class ReplicaSpec(Object):
    """ReplicaSpec describes the pods of one role."""

    replicas: int | None = field(default=None, metadata={"json": "replicas"})
    """replicas is the number of pods. There is exactly one launcher. Default: 1."""
    restart_policy: Literal["Never", "OnFailure", "Always", "ExitCode"] | None = field(default=None, metadata={"json": "restartPolicy"})
    """restartPolicy of the pods: Never or OnFailure. It overrides the template's. Default: OnFailure for
    the launcher, Never for workers."""
    template: dict[str, Any] = field(default_factory=dict, metadata={"json": "template"})
    """template of the pods. A worker whose first container has neither command nor args needs no SSH
    server in its image. A worker with a command must start an sshd."""


@dataclass
class NetworkPolicy(Object):
    """networkPolicy creates a NetworkPolicy that isolates the job. Default: none."""

    template: Literal["Default", "Restricted"] | None = field(default=None, metadata={"json": "template"})
    """template selects the rules. Default allows traffic between the pods of the job and all egress, and
    denies other ingress. Restricted also denies egress, except to the pods of the job, to DNS and to the
    ports that the operator is configured to allow (443)."""


@dataclass
class SchedulingPolicy(Object):
    """schedulingPolicy has the settings of gang scheduling."""

    min_available: int | None = field(default=None, metadata={"json": "minAvailable"})
    """minAvailable is the number of pods that must be schedulable before any starts. Default: all pods,
    including the launcher."""
    min_resources: dict[str, Any] = field(default_factory=dict, metadata={"json": "minResources"})
    """minResources that must be free before any pod starts. Default: the sum of the requests of the
    pods."""
    priority_class: str | None = field(default=None, metadata={"json": "priorityClass"})
    """priorityClass of the pods, the name of a PriorityClass."""
    queue: str | None = field(default=None, metadata={"json": "queue"})
    """queue of Volcano or KAI that the pods wait in."""
    schedule_timeout_seconds: int | None = field(default=None, metadata={"json": "scheduleTimeoutSeconds"})
    """scheduleTimeoutSeconds is how long the pods may wait to be scheduled before the job fails.
    Default: 0, which is no limit."""


@dataclass
class RunPolicy(Object):
    """runPolicy sets the deadline, the retries, the cleanup and the scheduling of the job."""

    active_deadline_seconds: int | None = field(default=None, metadata={"json": "activeDeadlineSeconds"})
    """activeDeadlineSeconds is the maximum run time, counted from status.startTime: a job that runs for
    longer fails. Default: no limit."""
    backoff_limit: int | None = field(default=None, metadata={"json": "backoffLimit"})
    """backoffLimit is how many times the launcher is restarted before the job fails. Default: 6."""
    clean_pod_policy: Literal["Running", "All", "None"] | None = field(default=None, metadata={"json": "cleanPodPolicy"})
    """cleanPodPolicy is the same as spec.cleanPodPolicy."""
    hang: Hang | None = field(default=None, metadata={"json": "hang"})
    """hang sets what happens if the ranks make no progress. Default: the operator's configuration."""
    managed_by: str | None = field(default=None, metadata={"json": "managedBy"})
    """managedBy names the controller of the job: training.kubeflow.org/trireme is this operator;
    kubeflow.org/mpi-operator, or no value, is mpi-operator if it runs on this cluster, otherwise this
    operator; kueue.x-k8s.io/multikueue runs the job in another cluster. Immutable."""
    scheduling_policy: SchedulingPolicy | None = field(default=None, metadata={"json": "schedulingPolicy"})
    """schedulingPolicy has the settings of gang scheduling."""
    suspend: bool | None = field(default=None, metadata={"json": "suspend"})
    """suspend stops the job and deletes its pods, and keeps the job. Setting it back to false starts the
    job from its beginning. Kueue sets and clears it. Default: false."""
    ttl_seconds_after_finished: int | None = field(default=None, metadata={"json": "ttlSecondsAfterFinished"})
    """ttlSecondsAfterFinished deletes the job this many seconds after it has finished. Default: the job
    is kept."""


@dataclass
class MPIJobSpec(Object):
    """spec is the desired state of the MPIJob. After creation only runPolicy.suspend can be changed and,
    while the job is suspended, the scheduling fields that queues set: labels, annotations, nodeSelector,
    tolerations and schedulingGates of the pod templates."""

    clean_pod_policy: Literal["Running", "All", "None"] | None = field(default=None, metadata={"json": "cleanPodPolicy"})
    """cleanPodPolicy selects the pods that are deleted when the job has finished: Running deletes the
    pods that still run, All deletes every pod, None deletes no pod. It is the same as
    runPolicy.cleanPodPolicy; if both are set they must be equal. Default: Running."""
    launcher_creation_policy: Literal["AtStartup", "WaitForWorkersReady"] | None = field(default=None, metadata={"json": "launcherCreationPolicy"})
    """launcherCreationPolicy selects when the launcher starts: AtStartup starts it with the workers,
    WaitForWorkersReady when all workers are ready. Default: AtStartup. In both cases mpirun starts only
    when every worker can be reached."""
    mpi_implementation: Literal["OpenMPI", "IntelMPI", "Intel", "MPICH"] | None = field(default=None, metadata={"json": "mpiImplementation"})
    """mpiImplementation is the MPI in the image: OpenMPI (4 or 5), IntelMPI or MPICH. Intel is another
    name for IntelMPI. Default: OpenMPI."""
    mpi_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict, metadata={"json": "mpiReplicaSpecs"})
    """mpiReplicaSpecs are the pods: Launcher, exactly one, and Worker, 2 to 100 unless the operator is
    configured otherwise."""
    network_policy: NetworkPolicy | None = field(default=None, metadata={"json": "networkPolicy"})
    """networkPolicy creates a NetworkPolicy that isolates the job. Default: none."""
    progress_pattern: str | None = field(default=None, metadata={"json": "progressPattern"})
    """progressPattern is a regular expression (RE2) that finds the progress of the training in the lines
    of its output: its first group is the step, a second group the number of steps, for example epoch
    (\\d+) of (\\d+). Lines of the form trireme: {"step": 10, "of": 100} need no pattern."""
    require_all_hosts: bool | None = field(default=None, metadata={"json": "requireAllHosts"})
    """requireAllHosts makes the job fail if its command succeeds without having used every worker, which
    happens when mpirun does not find the hostfile. Default: false; unused workers are then only
    reported."""
    run_launcher_as_worker: bool | None = field(default=None, metadata={"json": "runLauncherAsWorker"})
    """runLauncherAsWorker adds the launcher to the hostfile, so that MPI processes run in it too.
    Default: false."""
    run_policy: RunPolicy | None = field(default=None, metadata={"json": "runPolicy"})
    """runPolicy sets the deadline, the retries, the cleanup and the scheduling of the job."""
    slots_per_worker: int | None = field(default=None, metadata={"json": "slotsPerWorker"})
    """slotsPerWorker is the number of MPI processes per worker, usually the number of its GPUs. From 1
    to 8 unless the operator is configured otherwise. Default: 1."""
    ssh_auth_mount_path: str | None = field(default=None, metadata={"json": "sshAuthMountPath"})
    """sshAuthMountPath is the directory of the job's SSH keys in containers that run their own sshd.
    Default: /root/.ssh where the container runs as root, else /home/mpiuser/.ssh."""


@dataclass
class JobCondition(Object):
    """JobCondition is a condition of a job."""

    last_transition_time: datetime | None = field(default=None, metadata={"json": "lastTransitionTime"})
    """lastTransitionTime is when status changed."""
    last_update_time: datetime | None = field(default=None, metadata={"json": "lastUpdateTime"})
    """lastUpdateTime is when any field of the condition changed."""
    message: str | None = field(default=None, metadata={"json": "message"})
    """message with details."""
    reason: str | None = field(default=None, metadata={"json": "reason"})
    """reason of the status, in CamelCase."""
    status: Literal["True", "False", "Unknown"] | None = field(default=None, metadata={"json": "status"})
    """status of the condition: True, False or Unknown."""
    type: str | None = field(default=None, metadata={"json": "type"})
    """type of the condition."""


@dataclass
class FailedProcess(Object):
    """failedProcess is the process that failed, with its last output. It is set if the launcher's output
    names the process."""

    error: str | None = field(default=None, metadata={"json": "error"})
    """error is the line of the program's output that names the error, such as a Python exception."""
    exit_code: int | None = field(default=None, metadata={"json": "exitCode"})
    """exitCode of the process."""
    host: str | None = field(default=None, metadata={"json": "host"})
    """host that the process ran on, as the hostfile names it."""
    last_lines: list[str] = field(default_factory=list, metadata={"json": "lastLines"})
    """lastLines are the last lines that the program wrote: at most 5 lines and 1 KiB. Of a Python
    traceback they are the innermost frame and the exception."""
    rank: int | None = field(default=None, metadata={"json": "rank"})
    """rank of the process in MPI_COMM_WORLD."""
    signal: int | None = field(default=None, metadata={"json": "signal"})
    """signal that killed the process."""


@dataclass
class QuotaWait(Object):
    """quotaWait is set while a ResourceQuota of the namespace refuses pods of the job and the job waits
    for free quota."""

    message: str | None = field(default=None, metadata={"json": "message"})
    """message of the API server."""
    name: str | None = field(default=None, metadata={"json": "name"})
    """name of the ResourceQuota; empty if the API server does not say."""
    since: datetime | None = field(default=None, metadata={"json": "since"})
    """since is when the quota first refused a pod of the job. The job fails with ResourceQuotaExceeded
    if the quota is still exceeded after the configured time (60 seconds)."""


@dataclass
class Ranks(Object):
    """ranks summarizes the MPI processes of the job, as its agents see them."""

    odd: list[Odd] = field(default_factory=list, metadata={"json": "odd"})
    """odd are the ranks that a stalled or slow job waits for, at most 16."""
    running: int | None = field(default=None, metadata={"json": "running"})
    """running is the number of ranks whose process exists."""
    total: int | None = field(default=None, metadata={"json": "total"})
    """total is the number of ranks that the job has slots for."""


@dataclass
class ReplicaStatus(Object):
    """ReplicaStatus counts the pods of one role."""

    active: int | None = field(default=None, metadata={"json": "active"})
    """active is the number of pods that are pending or running."""
    failed: int | None = field(default=None, metadata={"json": "failed"})
    """failed is the number of pods that failed."""
    label_selector: dict[str, Any] = field(default_factory=dict, metadata={"json": "labelSelector"})
    """labelSelector is kept where another operator has set it; use selector."""
    selector: str | None = field(default=None, metadata={"json": "selector"})
    """selector of the pods, in the format of kubectl -l."""
    succeeded: int | None = field(default=None, metadata={"json": "succeeded"})
    """succeeded is the number of pods that succeeded."""


@dataclass
class Restart(Object):
    """restart is set after the job was restarted because of a failure, or while a restart is due."""

    count: int | None = field(default=None, metadata={"json": "count"})
    """count is the number of restarts, including one that is due. Its maximum is backoffLimit."""
    due_time: datetime | None = field(default=None, metadata={"json": "dueTime"})
    """dueTime is when the restart is due: 10 seconds after the first failure, twice as long after each
    further failure, at most 6 minutes. The restart also waits until the old pods are deleted."""
    message: str | None = field(default=None, metadata={"json": "message"})
    """message names the pod or rank of the last failure, the cause, and what to do."""
    reason: Literal["GangSchedulingTimeout", "LauncherFailed", "WorkerFailed", "SSHConnectionFailed", "MPIInitializationFailed", "TrainingError", "ResourceQuotaExceeded"] | None = field(default=None, metadata={"json": "reason"})
    """reason of the last failure."""


@dataclass
class TimelineEntry(Object):
    """TimelineEntry is a step that a job has reached."""

    step: Literal["Submitted", "Admitted", "Scheduled", "PodsReady", "WorkersReached", "FirstRankUp", "Finished"] | None = field(default=None, metadata={"json": "step"})
    """step that was reached. WorkersReached: the launcher has logged in to every worker and has checked
    the ports that MPI uses. FirstRankUp: the first rank has been started, as the agents report while the
    job runs. Without such a report, it is set when the launcher has finished, to the time when mpirun
    had logged in to the last worker; it is then missing if the workers run the sshd of their image."""
    time: datetime | None = field(default=None, metadata={"json": "time"})
    """time when the step was reached."""


@dataclass
class TrainerStatus(Object):
    """trainerStatus is the progress that the training reports."""

    estimated_remaining_seconds: int | None = field(default=None, metadata={"json": "estimatedRemainingSeconds"})
    """estimatedRemainingSeconds is how long the training still takes. If the training does not report
    it, it is estimated from the time that the last steps took."""
    last_updated_time: datetime | None = field(default=None, metadata={"json": "lastUpdatedTime"})
    """lastUpdatedTime is when the training last reported progress."""
    metrics: list[Metrics] = field(default_factory=list, metadata={"json": "metrics"})
    """metrics are the last values that the training reported, such as its loss. At most 256."""
    progress_percentage: int | None = field(default=None, metadata={"json": "progressPercentage"})
    """progressPercentage is how much of the training is completed, from 0 to 100."""
    step: int | None = field(default=None, metadata={"json": "step"})
    """step is the last step that the training has completed."""
    total_steps: int | None = field(default=None, metadata={"json": "totalSteps"})
    """totalSteps is the number of steps of the training, if it is known."""


@dataclass
class PodStatus(Object):
    """launcherPodStatus is the state of the launcher's pod."""

    message: str | None = field(default=None, metadata={"json": "message"})
    """message with details about the reason."""
    name: str | None = field(default=None, metadata={"json": "name"})
    """name of the pod."""
    node: str | None = field(default=None, metadata={"json": "node"})
    """node of the pod."""
    phase: str | None = field(default=None, metadata={"json": "phase"})
    """phase of the pod: Pending, Running, Succeeded, Failed or Unknown."""
    reason: str | None = field(default=None, metadata={"json": "reason"})
    """reason why the pod waits or failed, such as OOMKilled or ImagePullBackOff."""
    index: int | None = field(default=None, metadata={"json": "index"})
    """index of the worker, from 0."""


@dataclass
class MPIJobStatus(JobStatusMixin):
    """status is the observed state of the job."""

    completion_time: datetime | None = field(default=None, metadata={"json": "completionTime"})
    """completionTime is when the job succeeded or failed."""
    conditions: list[JobCondition] = field(default_factory=list, metadata={"json": "conditions"})
    """conditions of the job: Created, Pending, Running, Restarting, Suspended, Succeeded, Failed,
    Stalled."""
    duration: str | None = field(default=None, metadata={"json": "duration"})
    """duration is the time from startTime to completionTime, such as 5m30s. It is set when the job has
    finished."""
    failed_process: FailedProcess | None = field(default=None, metadata={"json": "failedProcess"})
    """failedProcess is the process that failed, with its last output. It is set if the launcher's output
    names the process."""
    failure_cause: str | None = field(default=None, metadata={"json": "failureCause"})
    """failureCause is what Kubernetes reports for the pod that failed, such as OOMKilled, Evicted or
    ImagePullBackOff, or Stalled if the ranks made no progress. It is empty where no pod failed."""
    failure_message: str | None = field(default=None, metadata={"json": "failureMessage"})
    """failureMessage names the pod or rank that failed, the cause, and what to do."""
    failure_reason: Literal["GangSchedulingTimeout", "LauncherFailed", "WorkerFailed", "SSHConnectionFailed", "MPIInitializationFailed", "TrainingError", "ResourceQuotaExceeded"] | None = field(default=None, metadata={"json": "failureReason"})
    """failureReason is the root cause of the failure."""
    last_reconcile_time: datetime | None = field(default=None, metadata={"json": "lastReconcileTime"})
    """lastReconcileTime is kept where another operator has set it."""
    launcher_pod_status: PodStatus | None = field(default=None, metadata={"json": "launcherPodStatus"})
    """launcherPodStatus is the state of the launcher's pod."""
    observed_generation: int | None = field(default=None, metadata={"json": "observedGeneration"})
    """observedGeneration is the generation of the job that this status describes."""
    phase: Literal["Pending", "Running", "Succeeded", "Failed"] | None = field(default=None, metadata={"json": "phase"})
    """phase is the summary of the status: Pending, Running, Succeeded or Failed. Succeeded and Failed
    are final."""
    quota_wait: QuotaWait | None = field(default=None, metadata={"json": "quotaWait"})
    """quotaWait is set while a ResourceQuota of the namespace refuses pods of the job and the job waits
    for free quota."""
    ranks: Ranks | None = field(default=None, metadata={"json": "ranks"})
    """ranks summarizes the MPI processes of the job, as its agents see them."""
    ready_worker_count: int | None = field(default=None, metadata={"json": "readyWorkerCount"})
    """readyWorkerCount is the number of workers that are ready."""
    ready_workers: str | None = field(default=None, metadata={"json": "readyWorkers"})
    """readyWorkers is the number of ready workers and of all workers, such as 3/4."""
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=dict, metadata={"json": "replicaStatuses"})
    """replicaStatuses count the pods of each role."""
    restart: Restart | None = field(default=None, metadata={"json": "restart"})
    """restart is set after the job was restarted because of a failure, or while a restart is due."""
    start_time: datetime | None = field(default=None, metadata={"json": "startTime"})
    """startTime is when every pod was scheduled."""
    timeline: list[TimelineEntry] = field(default_factory=list, metadata={"json": "timeline"})
    """timeline is when the job reached each step."""
    trainer_status: TrainerStatus | None = field(default=None, metadata={"json": "trainerStatus"})
    """trainerStatus is the progress that the training reports."""
    worker_count: int | None = field(default=None, metadata={"json": "workerCount"})
    """workerCount is the number of workers that the job has."""
    worker_pod_statuses: list[PodStatus] = field(default_factory=list, metadata={"json": "workerPodStatuses"})
    """workerPodStatuses is the state of each worker's pod."""


@dataclass
class MPIJob(JobObject):
    """MPIJob runs a command over MPI: a launcher that runs mpirun, and workers on which mpirun starts
    the MPI processes. All of them start together or not at all."""

    api_version: str | None = field(default=None, metadata={"json": "apiVersion"})
    """APIVersion defines the versioned schema of this representation of an object. Servers should
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"""
    kind: str | None = field(default=None, metadata={"json": "kind"})
    """Kind is a string value representing the REST resource this object represents. Servers may infer
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info:
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"""
    metadata: ObjectMeta = field(default_factory=ObjectMeta, metadata={"json": "metadata"})
    """Name, namespace, labels and annotations."""
    spec: MPIJobSpec = field(default_factory=lambda: MPIJobSpec(), metadata={"json": "spec"})
    """spec is the desired state of the MPIJob. After creation only runPolicy.suspend can be changed and,
    while the job is suspended, the scheduling fields that queues set: labels, annotations, nodeSelector,
    tolerations and schedulingGates of the pod templates."""
    status: MPIJobStatus = field(default_factory=lambda: MPIJobStatus(), metadata={"json": "status"})
    """status is the observed state of the job."""


@dataclass
class Constraints(Object):
    """constraints limit the jobs that use this runtime."""

    max_gpus_per_node: int | None = field(default=None, metadata={"json": "maxGPUsPerNode"})
    """maxGPUsPerNode is the maximum number of GPUs that each worker may request. At least 0."""
    max_nodes: int | None = field(default=None, metadata={"json": "maxNodes"})
    """maxNodes is the maximum number of workers of a job. At least 1."""
    required_node_labels: dict[str, Any] = field(default_factory=dict, metadata={"json": "requiredNodeLabels"})
    """requiredNodeLabels are labels that the nodes of the workers must have. They are added to the
    workers' nodeSelector."""


@dataclass
class Hang(Object):
    """hang sets what happens if the ranks make no progress. Default: the runtime's."""

    action: Literal["Warn", "Restart", "Fail"] | None = field(default=None, metadata={"json": "action"})
    """action is what happens to a stalled job: Warn sets the condition Stalled, Restart restarts the job
    as after a failure, Fail fails it. A job in which some ranks compute while the others wait for them
    is never restarted or failed. Default: Warn unless the operator is configured otherwise."""
    after: str | None = field(default=None, metadata={"json": "after"})
    """after is how long the ranks of a job may make no progress before the job is stalled: no output, no
    reported step, and no computation outside of MPI. For example 30m; 0s disables the detection.
    Default: 15m unless the operator is configured otherwise."""


@dataclass
class MLPolicy(Object):
    """mlPolicy sets the MPI implementation, and defaults for the size of jobs."""

    mpi_implementation: Literal["OpenMPI", "IntelMPI", "MPICH"] | None = field(default=None, metadata={"json": "mpiImplementation"})
    """mpiImplementation is the MPI in the images: OpenMPI (4 or 5), IntelMPI or MPICH. A runtime without
    it cannot be used by a TrainJob."""
    num_nodes: int | None = field(default=None, metadata={"json": "numNodes"})
    """numNodes is the number of workers of a job that does not set it. From 1 to 64 unless the operator
    is configured otherwise."""
    slots_per_worker: int | None = field(default=None, metadata={"json": "slotsPerWorker"})
    """slotsPerWorker is the number of MPI processes per worker of a job that does not set it. From 1 to
    16 unless the operator is configured otherwise. Default: 1."""


@dataclass
class GangPolicy(Object):
    """coscheduling uses the PodGroup of scheduler-plugins (scheduling.x-k8s.io)."""

    schedule_timeout_seconds: int | None = field(default=None, metadata={"json": "scheduleTimeoutSeconds"})
    """scheduleTimeoutSeconds is how long the pods may wait to be scheduled before the job fails with
    GangSchedulingTimeout. From 60 to 3600. Default: 300; use 600 for large clusters."""
    queue: str | None = field(default=None, metadata={"json": "queue"})
    """queue of the scheduler that the pods wait in. It must exist. Default: the default queue of
    Volcano, or default-queue of KAI."""


@dataclass
class PodGroupPolicy(Object):
    """podGroupPolicy selects how the pods of a job are gang scheduled. Default: the gang scheduler that
    the cluster has, with a timeout of 300 seconds."""

    coscheduling: GangPolicy | None = field(default=None, metadata={"json": "coscheduling"})
    """coscheduling uses the PodGroup of scheduler-plugins (scheduling.x-k8s.io)."""
    kai: GangPolicy | None = field(default=None, metadata={"json": "kai"})
    """kai uses the PodGroup of NVIDIA's KAI scheduler (scheduling.run.ai)."""
    native: GangPolicy | None = field(default=None, metadata={"json": "native"})
    """native uses the PodGroup of Kubernetes itself (scheduling.k8s.io)."""
    priority_class: str | None = field(default=None, metadata={"json": "priorityClass"})
    """priorityClass of the pods, the name of a PriorityClass."""
    priority_class_name: str | None = field(default=None, metadata={"json": "priorityClassName"})
    """priorityClassName is another name for priorityClass; if both are set they must agree."""
    volcano: GangPolicy | None = field(default=None, metadata={"json": "volcano"})
    """volcano uses the PodGroup of Volcano (scheduling.volcano.sh)."""


@dataclass
class ReplicatedJob(Object):
    """ReplicatedJob describes the pods of one role."""

    name: str | None = field(default=None, metadata={"json": "name"})
    """name of the role: launcher or worker."""
    replicas: int | None = field(default=None, metadata={"json": "replicas"})
    """replicas of the worker is the number of workers if neither the job nor mlPolicy sets it. There is
    exactly one launcher."""
    template: dict[str, Any] = field(default_factory=dict, metadata={"json": "template"})
    """template of the pods. Its first container runs the training: it gets the job's image, command,
    environment and resources."""


@dataclass
class RuntimeTemplateSpec(Object):
    """spec of the template."""

    replicated_jobs: list[ReplicatedJob] = field(default_factory=list, metadata={"json": "replicatedJobs"})
    """replicatedJobs are exactly two: launcher and worker."""


@dataclass
class RuntimeTemplate(Object):
    """template of the pods."""

    spec: RuntimeTemplateSpec | None = field(default=None, metadata={"json": "spec"})
    """spec of the template."""


@dataclass
class TrainingRuntime(Object):
    """TrainingRuntime is a runtime for the TrainJobs of its own namespace."""

    api_version: str | None = field(default=None, metadata={"json": "apiVersion"})
    """APIVersion defines the versioned schema of this representation of an object. Servers should
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"""
    kind: str | None = field(default=None, metadata={"json": "kind"})
    """Kind is a string value representing the REST resource this object represents. Servers may infer
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info:
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"""
    metadata: ObjectMeta = field(default_factory=ObjectMeta, metadata={"json": "metadata"})
    """Name, namespace, labels and annotations."""
    spec: TrainingRuntimeSpec = field(default_factory=lambda: TrainingRuntimeSpec(), metadata={"json": "spec"})
    """spec describes the pods of jobs. A change affects only jobs that are created later."""


@dataclass
class TrainingRuntimeSpec(Object):
    """spec describes the pods of jobs. A change affects only jobs that are created later."""

    constraints: Constraints | None = field(default=None, metadata={"json": "constraints"})
    """constraints limit the jobs that use this runtime."""
    hang: Hang | None = field(default=None, metadata={"json": "hang"})
    """hang sets what happens if the ranks of a job make no progress. Default: the operator's
    configuration."""
    ml_policy: MLPolicy | None = field(default=None, metadata={"json": "mlPolicy"})
    """mlPolicy sets the MPI implementation, and defaults for the size of jobs."""
    pod_group_policy: PodGroupPolicy | None = field(default=None, metadata={"json": "podGroupPolicy"})
    """podGroupPolicy selects how the pods of a job are gang scheduled. Default: the gang scheduler that
    the cluster has, with a timeout of 300 seconds."""
    progress_pattern: str | None = field(default=None, metadata={"json": "progressPattern"})
    """progressPattern is a regular expression (RE2) that finds the progress of a training in the lines
    of its output: its first group is the step, a second group the number of steps, for example epoch
    (\\d+) of (\\d+). A job can set its own."""
    template: RuntimeTemplate | None = field(default=None, metadata={"json": "template"})
    """template of the pods."""


@dataclass
class ClusterTrainingRuntime(Object):
    """ClusterTrainingRuntime is a runtime for the TrainJobs of every namespace."""

    api_version: str | None = field(default=None, metadata={"json": "apiVersion"})
    """APIVersion defines the versioned schema of this representation of an object. Servers should
    convert recognized schemas to the latest internal value, and may reject unrecognized values. More
    info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"""
    kind: str | None = field(default=None, metadata={"json": "kind"})
    """Kind is a string value representing the REST resource this object represents. Servers may infer
    this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info:
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"""
    metadata: ObjectMeta = field(default_factory=ObjectMeta, metadata={"json": "metadata"})
    """Name, namespace, labels and annotations."""
    spec: TrainingRuntimeSpec = field(default_factory=lambda: TrainingRuntimeSpec(), metadata={"json": "spec"})
    """spec describes the pods of jobs. A change affects only jobs that are created later."""

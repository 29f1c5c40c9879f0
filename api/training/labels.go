// SPDX-License-Identifier: Apache-2.0

package training

// Group is the API group of every kind of ours.
const Group = "kubeflow.org"

// Labels on jobs and on their objects.
const (
	// LabelJobName is the name of the job that a pod belongs to. Admission sets it and
	// LabelJobType on the job itself, too.
	LabelJobName = "training.kubeflow.org/job-name"
	// LabelJobType is the kind of the job, because TrainJobs and MPIJobs have the
	// same kinds of objects.
	LabelJobType = "training.kubeflow.org/job-type"
	// LabelReplicaType is the role of a pod: launcher, worker or initializer.
	LabelReplicaType = "training.kubeflow.org/replica-type"
	// LabelReplicaIndex is the number of a worker, from 0.
	LabelReplicaIndex = "training.kubeflow.org/replica-index"
	// LabelJobRole and LabelOperatorName are mpi-operator's; Kueue and scripts of
	// users select by them.
	LabelJobRole      = "training.kubeflow.org/job-role"
	LabelOperatorName = "training.kubeflow.org/operator-name"
	// LabelRestart is the number of the restart that a pod was created for, 0 for the
	// first start.
	LabelRestart = "training.kubeflow.org/restart"
	// LabelJobUID is the UID of the job that a pod belongs to, on pods that a JobSet
	// or a batch Job controls.
	LabelJobUID = "training.kubeflow.org/job-uid"
	// LabelQueue names the queue of Kueue that a job waits in.
	LabelQueue = "kueue.x-k8s.io/queue-name"
	// LabelRuntimeDigest on a ControllerRevision marks the snapshot of a runtime. Its
	// value is the first half of the digest: a label has room for no more.
	LabelRuntimeDigest = "training.kubeflow.org/runtime-digest"
)

// Values of LabelJobType.
const (
	JobTypeTrainJob = "trainjob"
	JobTypeMPIJob   = "mpijob"
	// JobTypeJobSet is the type of a JobSet of Kubeflow's Trainer.
	JobTypeJobSet = "jobset"
)

// Values of LabelReplicaType and LabelJobRole.
const (
	RoleLauncher    = "launcher"
	RoleWorker      = "worker"
	RoleInitializer = "initializer"
)

// OperatorNameMPI is the value of LabelOperatorName on what belongs to an MPIJob.
const OperatorNameMPI = "mpi-operator"

// AnnotationCreatedBy on a job is the user who created it. Admission sets it.
const AnnotationCreatedBy = "training.kubeflow.org/created-by"

// AnnotationRuntimeDigest on a JobSet is the digest of the runtime that it was created
// from. It holds until the job's status has it.
const AnnotationRuntimeDigest = "training.kubeflow.org/runtime-digest"

// IstioInject is the key, as annotation and as label, by which Istio decides
// whether a pod gets a sidecar. MPI does not work through one.
const IstioInject = "sidecar.istio.io/inject"

// AnnotationRecord on a JobSet of Kubeflow's Trainer is what Trireme knows of the job: a
// JobSet's status has no room for it.
const AnnotationRecord = "training.kubeflow.org/record"

// AnnotationExclusiveTopology asks JobSet for a topology domain of its own. It is
// refused: JobSet's webhook and a gang would wait for each other.
const AnnotationExclusiveTopology = "alpha.jobset.sigs.k8s.io/exclusive-topology"

// AnnotationTagOutput on a job, if "true", puts the rank in front of every line
// that the ranks print.
const AnnotationTagOutput = "training.kubeflow.org/tag-output"

// ManagedByTrireme is the managedBy of the JobSets and batch Jobs that stand for our
// jobs: their own controllers leave them alone. In an MPIJob it keeps mpi-operator away.
const ManagedByTrireme = "training.kubeflow.org/trireme"

// FinalizerLauncher keeps a launcher's pod until its end is in the job's status: a
// launcher that finishes while no operator runs still decides its job.
const FinalizerLauncher = "training.kubeflow.org/launcher"

// ManagedByMultiKueue is the managedBy of a job that runs in another cluster.
const ManagedByMultiKueue = "kueue.x-k8s.io/multikueue"

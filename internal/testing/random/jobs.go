// SPDX-License-Identifier: Apache-2.0

package random

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// MPIJob is one that a user could mean: most are accepted, and the others have
// something in the operator's own places.
func MPIJob(seed int64) *v2beta1.MPIJob {
	dice := throw(seed)
	mpiJob := &v2beta1.MPIJob{
		ObjectMeta: dice.metadata(),
		Spec: v2beta1.MPIJobSpec{
			SlotsPerWorker:         maybe(dice, 1+dice.Int31n(8)),
			RunLauncherAsWorker:    maybe(dice, dice.chance(50)),
			RequireAllHosts:        maybe(dice, dice.chance(50)),
			MPIImplementation:      pick(dice, "", v2beta1.MPIImplementationOpenMPI, v2beta1.MPIImplementationIntel, v2beta1.MPIImplementationIntelMPI, v2beta1.MPIImplementationMPICH),
			LauncherCreationPolicy: pick(dice, "", v2beta1.LauncherCreationPolicyAtStartup, v2beta1.LauncherCreationPolicyWaitForWorkersReady),
			CleanPodPolicy:         maybe(dice, pick(dice, training.CleanPodPolicyAll, training.CleanPodPolicyNone, training.CleanPodPolicyRunning)),
			NetworkPolicy:          dice.networkPolicy(),
			SSHAuthMountPath:       pick(dice, "", "", "", "/root/.ssh", "/home/mpiuser/.ssh/", "/keys"),
			RunPolicy: v2beta1.RunPolicy{
				BackoffLimit: maybe(dice, dice.Int31n(3)), TTLSecondsAfterFinished: maybe(dice, dice.Int31n(3)), ActiveDeadlineSeconds: maybe(dice, dice.Int63n(3)),
				Suspend: maybe(dice, dice.chance(50)), ManagedBy: maybe(dice, v2beta1.ManagedByMPIOperator),
			},
			MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
				v2beta1.MPIReplicaTypeLauncher: {
					Replicas: maybe(dice, int32(1)), RestartPolicy: pick(dice, "", v2beta1.RestartPolicyNever, v2beta1.RestartPolicyOnFailure),
					Template: dice.template("launcher"),
				},
			},
		},
	}
	if dice.chance(4 * trap) {
		mpiJob.Spec.SSHAuthMountPath = pick(dice, directories.traps...)
	}
	if dice.chance(50) {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{
			Queue: pick(dice, "", "research"), PriorityClass: pick(dice, "", "urgent"), ScheduleTimeoutSeconds: maybe(dice, 60+dice.Int31n(600)),
		}
	}
	// One that does the work itself is accepted where the configuration lets it.
	if dice.chance(90) || mpiJob.Spec.RunLauncherAsWorker == nil {
		mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker] = &v2beta1.ReplicaSpec{
			Replicas: new(2 + dice.Int31n(3)), RestartPolicy: pick(dice, "", v2beta1.RestartPolicyNever), Template: dice.template("worker"),
		}
	}
	return mpiJob
}

// TrainJob is one that a user could mean, with the runtime that it names.
func TrainJob(seed int64) (*v2alpha1.TrainJob, *v2alpha1.TrainingRuntimeSpec) {
	dice := throw(seed)
	runtime := &v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{
			MPIImplementation: pick(dice, v2alpha1.MPIImplementationOpenMPI, v2alpha1.MPIImplementationIntelMPI, v2alpha1.MPIImplementationMPICH),
			NumNodes:          maybe(dice, 1+dice.Int31n(4)), SlotsPerWorker: maybe(dice, 1+dice.Int31n(16)),
		},
		PodGroupPolicy: dice.podGroupPolicy(),
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Replicas: maybe(dice, int32(1)), Template: dice.template("launcher")},
			{Name: v2alpha1.ReplicatedJobWorker, Replicas: maybe(dice, 1+dice.Int31n(4)), Template: dice.template("worker")},
		}}},
	}
	if dice.chance(30) {
		runtime.Constraints = &v2alpha1.Constraints{RequiredNodeLabels: map[string]string{"gpu": "h100"}}
	}
	trainJob := &v2alpha1.TrainJob{
		ObjectMeta: dice.metadata(),
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef:    v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "runtime"},
			NetworkPolicy: dice.networkPolicy(), Initializer: dice.initializer(),
			RequireAllHosts: maybe(dice, dice.chance(50)), Suspend: maybe(dice, dice.chance(50)),
			BackoffLimit: maybe(dice, dice.Int31n(3)), CleanPodPolicy: maybe(dice, pick(dice, training.CleanPodPolicyAll, training.CleanPodPolicyNone, training.CleanPodPolicyRunning)),
			Trainer: v2alpha1.Trainer{
				Image: pick(dice, images...), Env: dice.environment(), NumNodes: maybe(dice, 1+dice.Int31n(4)), SlotsPerWorker: maybe(dice, 1+dice.Int31n(16)),
				Command: some(dice, 2, "python", "train.py", "mpirun"), Args: some(dice, 2, "-np", "3", "--epochs"),
				ResourcesPerNode: maybe(dice, requirements(pick(dice, "2", "8"), "4Gi")),
			},
			Launcher: maybe(dice, v2alpha1.Launcher{Resources: maybe(dice, requirements("1", "1Gi"))}),
		},
	}
	// A runtime has names of its own; most jobs know better than to take the same.
	for _, name := range some(dice, 1, "more", "job-data") {
		trainJob.Spec.Trainer.Volumes = []corev1.Volume{{Name: name, VolumeSource: dice.volumeSource()}}
		trainJob.Spec.Trainer.VolumeMounts = []corev1.VolumeMount{{Name: name, MountPath: pick(dice, "/more", "/job/data/")}}
		if dice.chance(2 * trap) {
			trainJob.Spec.Trainer.Volumes[0].Name, trainJob.Spec.Trainer.VolumeMounts[0].Name = "trireme-keys", "trireme-keys"
		}
		if dice.chance(2 * trap) {
			trainJob.Spec.Trainer.VolumeMounts[0].MountPath = pick(dice, directories.traps...)
		}
		if dice.chance(2 * trap) {
			trainJob.Spec.Trainer.VolumeMounts[0].MountPath = "/home/mpiuser/.ssh"
		}
	}
	return trainJob, runtime
}

func (dice dice) metadata() metav1.ObjectMeta {
	metadata := metav1.ObjectMeta{Namespace: "team-a", Name: pick(dice, "resnet", "a", "bert-base-uncased-01"), UID: types.UID(fmt.Sprint(dice.Int63()))}
	if dice.chance(30) {
		metadata.Annotations = map[string]string{training.AnnotationTagOutput: pick(dice, "true", "false")}
	}
	if dice.chance(30) {
		metadata.Labels = map[string]string{training.LabelQueue: "research", "team": "a"}
	}
	return metadata
}

func (dice dice) networkPolicy() *training.NetworkPolicy {
	return maybe(dice, training.NetworkPolicy{Template: pick(dice, training.NetworkPolicyDefault, training.NetworkPolicyRestricted)})
}

func (dice dice) podGroupPolicy() *v2alpha1.PodGroupPolicy {
	policy := v2alpha1.PodGroupPolicy{PriorityClass: pick(dice, "", "urgent")}
	switch dice.Intn(6) {
	case 0:
		policy.Coscheduling = &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: maybe(dice, int32(90))}
	case 1:
		policy.Volcano = &v2alpha1.QueuedGangPolicy{Queue: pick(dice, "", "research")}
	case 2:
		policy.Native = &v2alpha1.GangPolicy{}
	case 3:
		policy.KAI = &v2alpha1.QueuedGangPolicy{Queue: pick(dice, "", "research")}
	}
	return maybe(dice, policy)
}

func (dice dice) initializer() *v2alpha1.Initializer {
	if dice.chance(50) {
		return nil
	}
	made := &v2alpha1.Initializer{Dataset: maybe(dice, dice.source()), Model: maybe(dice, dice.source())}
	made.Storage = &v2alpha1.InitializerStorage{ClaimName: "shared"}
	if dice.chance(50) {
		made.Storage = &v2alpha1.InitializerStorage{Size: new(resource.MustParse("1Gi")), StorageClassName: maybe(dice, "fast")}
	}
	return made
}

func (dice dice) source() v2alpha1.Source {
	uris := []string{"s3://bucket/set", "hf://org/model", "pvc://archive", "pvc://archive/sets/one"}
	if dice.chance(2 * trap) {
		uris = []string{"pvc://No_Claim/sets", "pvc://archive:80/sets", "pvc:///sets"}
	}
	return v2alpha1.Source{StorageURI: pick(dice, uris...), SecretRef: maybe(dice, v2alpha1.SecretRef{Name: "token"})}
}

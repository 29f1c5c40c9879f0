// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// What a LimitRange fills in is not what a user has asked for.
func TestTheLeastBindsOnlyWhatIsAskedFor(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: resources("cpu", "100m", "memory", "256Mi"), Max: resources("cpu", "2"), Default: resources("cpu", "1"),
		}}},
	})
	// The LimitRange is known when it refuses something.
	refusal(t, func() error {
		return cluster.client.Create(t.Context(), mpiJob(namespace, "train"), dryRun)
	})
	for _, document := range deployed.Documents(t, filepath.Join(mpiOperator(t), "examples/v2beta1/tensorflow-benchmarks/tensorflow-benchmarks.yaml")) {
		document.SetNamespace(namespace)
		if err := cluster.client.Create(t.Context(), document); err != nil {
			t.Error(err)
		}
	}
}

func TestLargeObjectsAreRefusedInTime(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	err := cluster.client.Create(t.Context(), trainJob(namespace, "train", func(job *v2alpha1.TrainJob) {
		for i := range 80_000 {
			job.Spec.Trainer.Env = append(job.Spec.Trainer.Env, corev1.EnvVar{Name: fmt.Sprintf("V%d", i)})
		}
	}))
	wantCauses(t, err, wantCause{"spec", "the object must have at most 1048576 bytes"})
}

func TestPasswordsAreNotRepeated(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	for _, uri := range []string{"https://key:hunter2@bucket/x", "s3://key:hunter2%zz@bucket/x", "s3://bucket/x?AWS_SECRET_ACCESS_KEY=hunter2"} {
		err := cluster.client.Create(t.Context(), trainJob(namespace, "train", func(job *v2alpha1.TrainJob) {
			job.Spec.Initializer = &v2alpha1.Initializer{
				Dataset: &v2alpha1.Source{StorageURI: uri}, Storage: &v2alpha1.InitializerStorage{ClaimName: "data"},
			}
		}))
		wantCauses(t, err, wantCause{"spec.initializer.dataset.storageUri", "must not contain credentials"})
		if contains(err, "hunter2") {
			t.Errorf("the answer repeats the password: %v", err)
		}
	}
}

// A job that another operator stored with labels that we would refuse can still
// be queued, and repaired bit by bit.
func TestStoredLabelsAreNotJudgedAgain(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, map[string]string{"training.kubeflow.org/admission": "disabled"})
	job := mpiJob(namespace, "train", func(job *v2beta1.MPIJob) {
		job.Labels = map[string]string{training.LabelJobName: "original", training.LabelJobType: "other"}
	})
	cluster.create(t, job)
	cluster.admit(t, namespace)
	job.Labels[training.LabelQueue] = "team"
	job.Labels[training.LabelJobName] = "train"
	if err := cluster.client.Update(t.Context(), job); err != nil {
		t.Errorf("a job that was stored with odd labels cannot be queued: %v", err)
	}
	job.Labels[training.LabelJobType] = "yet-another"
	wantCauses(t, cluster.client.Update(t.Context(), job), wantCause{"metadata.labels[training.kubeflow.org/job-type]", `must be "mpijob"`})
}

// Limits that were lowered do not keep anybody from labelling a runtime.
func TestRuntimesCanBeLabelled(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, map[string]string{"training.kubeflow.org/admission": "disabled"})
	made := runtime(namespace, "mpi", func(runtime *v2alpha1.TrainingRuntimeSpec) { runtime.MLPolicy.NumNodes = new(int32(1000)) })
	cluster.create(t, made)
	everywhere := &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{GenerateName: "mpi-"}, Spec: runtime("", "").Spec}
	cluster.create(t, everywhere)
	everywhere.Labels = map[string]string{"team": "vision"}
	if err := cluster.client.Update(t.Context(), everywhere); err != nil {
		t.Error(err)
	}
}

func TestAuditNamesTheMembersOfACollection(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, mpiJob(namespace, "one-of-many"))
	if err := cluster.client.DeleteAllOf(t.Context(), &v2beta1.MPIJob{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the audit", func() error {
		for _, line := range cluster.audit.About(t, "one-of-many") {
			if line["verb"] == "delete" {
				return nil
			}
		}
		return fmt.Errorf("no line about the job")
	})
}

func TestNoWarningOfGPUsThatANodeHas(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-node"}}
	cluster.create(t, node)
	node.Status.Capacity = resources("amd.com/gpu", "8")
	node.Status.Allocatable = node.Status.Capacity
	if err := cluster.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the node counts", func() error {
		cluster.warnings.take()
		cluster.createIfMissing(t, mpiJob(namespace, "amd", func(job *v2beta1.MPIJob) {
			worker(job).Resources.Limits = resources("cpu", "1", "memory", "1Gi", "amd.com/gpu", "2")
		}))
		warned := strings.Join(cluster.warnings.take(), "\n")
		if err := cluster.client.DeleteAllOf(t.Context(), &v2beta1.MPIJob{}, client.InNamespace(namespace)); err != nil {
			return err
		}
		if strings.Contains(warned, "no node of this cluster") {
			return fmt.Errorf("warned: %s", warned)
		}
		return nil
	})
}

func TestMultiKueue(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	cluster.warnings.take()
	elsewhere := func(job *v2beta1.MPIJob) {
		job.Spec.RunPolicy.ManagedBy = new(training.ManagedByMultiKueue)
		// Not allowed here, but it will not run here.
		job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.HostNetwork = true
		job.Spec.CleanPodPolicy = new(training.CleanPodPolicyAll)
	}
	cluster.create(t, mpiJob(namespace, "away", elsewhere))
	warned := strings.Join(cluster.warnings.take(), "\n")
	if !strings.Contains(warned, "spec.cleanPodPolicy: MultiKueue drops this field") || strings.Contains(warned, "no node of this cluster") {
		t.Errorf("warned of %q", warned)
	}
	err := cluster.client.Create(t.Context(), mpiJob(namespace, "fenced", elsewhere, func(job *v2beta1.MPIJob) {
		job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyRestricted}
	}))
	wantCauses(t, err, wantCause{"spec.networkPolicy", "MultiKueue drops this field"})
}

// Things that Kubernetes would refuse of the pods, and therefore we of the job.
func TestPodsThatCouldNeverBeCreated(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	container := workerAt + ".template.spec.containers[0]"
	for name, tc := range map[string]struct {
		change func(*v2beta1.MPIJob)
		want   wantCause
	}{
		"a device without a limit": {
			func(job *v2beta1.MPIJob) { worker(job).Resources.Requests = resources("rdma/hca", "1") },
			wantCause{container + ".resources.requests[rdma/hca]", "rdma/hca cannot be overcommitted"},
		},
		"half a device": {
			func(job *v2beta1.MPIJob) { worker(job).Resources.Limits["rdma/hca"] = resourceOf("500m") },
			wantCause{container + ".resources.limits[rdma/hca]", "must be a whole number"},
		},
		"a resource that there cannot be": {
			func(job *v2beta1.MPIJob) { worker(job).Resources.Limits["gpu"] = resourceOf("1") },
			wantCause{container + ".resources.limits[gpu]", "is not a resource name"},
		},
		"a volume's name": {
			func(job *v2beta1.MPIJob) {
				job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.Volumes = []corev1.Volume{{Name: "Bad_Name"}}
			},
			wantCause{workerAt + ".template.spec.volumes[0].name", "a lowercase RFC 1123 label"},
		},
		"two containers of one name": {
			func(job *v2beta1.MPIJob) {
				job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.InitContainers = []corev1.Container{{Name: "worker", Image: "a/b"}}
			},
			wantCause{workerAt + ".template.spec.initContainers[0].name", `Duplicate value: "worker"`},
		},
		"a node selector": {
			func(job *v2beta1.MPIJob) {
				job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.NodeSelector = map[string]string{"pool": "a b"}
			},
			wantCause{workerAt + ".template.spec.nodeSelector", "a valid label must"},
		},
		"less than nothing for the whole pod": {
			func(job *v2beta1.MPIJob) {
				job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.Resources = &corev1.ResourceRequirements{Requests: resources("ephemeral-storage", "-5")}
			},
			wantCause{workerAt + ".template.spec.resources.requests[ephemeral-storage]", "must not be negative"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantCauses(t, cluster.client.Create(t.Context(), mpiJob(namespace, "train", tc.change), dryRun), tc.want)
		})
	}
}

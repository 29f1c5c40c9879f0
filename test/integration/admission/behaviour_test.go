// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

var dryRun = client.DryRunAll

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func TestWarnings(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	for name, tc := range map[string]struct {
		object client.Object
		want   []string
	}{
		"slots that differ from GPUs": {
			mpiJob(namespace, "slots", func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(1)) }),
			[]string{"spec.slotsPerWorker: a worker has 1 slots and 2 GPUs; usually one MPI process runs on each GPU"},
		},
		"GPUs that no node has": {
			mpiJob(namespace, "gpus"),
			[]string{workerAt + ".template.spec.containers[0].resources: no node of this cluster has nvidia.com/gpu now; the job waits until a node has it"},
		},
		"GPUs and nothing else": {
			mpiJob(namespace, "only-gpus", func(job *v2beta1.MPIJob) { worker(job).Resources.Limits = resources("nvidia.com/gpu", "2") }),
			[]string{workerAt + ".template.spec.containers[0].resources: workers request only GPUs"},
		},
		"a runtime without the Istio annotation": {
			runtime(namespace, "istio", func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtime.Template.Spec.ReplicatedJobs[1].Template.Annotations = nil
			}),
			[]string{`spec.template.spec.replicatedJobs[1].template.metadata.annotations: does not contain sidecar.istio.io/inject: "false"`},
		},
		"a runtime without MPI": {
			runtime(namespace, "no-mpi", func(runtime *v2alpha1.TrainingRuntimeSpec) { runtime.MLPolicy.MPIImplementation = "" }),
			[]string{"spec.mlPolicy.mpiImplementation: is not set, so no TrainJob can use this runtime"},
		},
		"nine GPUs a node": {
			trainJob(namespace, "nine", func(job *v2alpha1.TrainJob) {
				job.Spec.Trainer.SlotsPerWorker = new(int32(9))
				job.Spec.Trainer.ResourcesPerNode.Limits = resources("cpu", "9", "memory", "9Gi", "nvidia.com/gpu", "9")
			}),
			[]string{"spec.trainer.resourcesPerNode: 9 GPUs per node; most machines have at most 8"},
		},
		"root where the namespace allows it": {
			mpiJob(namespace, "root", func(job *v2beta1.MPIJob) {
				worker(job).SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(0))}
			}),
			[]string{workerAt + `.template: worker pods would violate PodSecurity "restricted:latest": runAsNonRoot != true`},
		},
		"Istio's sidecar": {
			mpiJob(namespace, "sidecar", func(job *v2beta1.MPIJob) { job.Annotations = map[string]string{training.IstioInject: "true"} }),
			[]string{"metadata.annotations[sidecar.istio.io/inject]: MPI does not work through Istio's sidecar"},
		},
		"a part of the pods": {
			mpiJob(namespace, "part", func(job *v2beta1.MPIJob) {
				job.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{MinAvailable: new(int32(3))}
			}),
			[]string{"spec.runPolicy.schedulingPolicy.minAvailable: 3 of 5 pods are scheduled together"},
		},
		"no command": {
			mpiJob(namespace, "entrypoint", func(job *v2beta1.MPIJob) { launcher(job).Command = nil }),
			[]string{launcherAt + ".template.spec.containers[0]: has neither command nor args, so the entrypoint of its image must start MPI"},
		},
		"the host's network and a policy": {
			mpiJob(namespace, "network", func(job *v2beta1.MPIJob) {
				job.Spec.NetworkPolicy = &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
				job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.HostNetwork = true
			}),
			[]string{"spec.networkPolicy: has no effect on pods with hostNetwork"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.warnings.take()
			cluster.create(t, tc.object)
			warned := strings.Join(cluster.warnings.take(), "\n")
			for _, want := range tc.want {
				if !strings.Contains(warned, want) {
					t.Errorf("no warning %q in:\n%s", want, warned)
				}
			}
		})
	}
	cluster.warnings.take()
	cluster.create(t, mpiJob(namespace, "quiet", func(job *v2beta1.MPIJob) {
		job.Spec.SlotsPerWorker = nil
		worker(job).Resources.Limits = resources("cpu", "1", "memory", "1Gi")
	}))
	if warned := cluster.warnings.take(); len(warned) > 0 {
		t.Errorf("an ordinary job is warned of: %q", warned)
	}
}

func TestAudit(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	identity, err := cluster.environment.AddUser(envtest.User{Name: "ada", Groups: []string{"system:masters", "team-vision"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ada := cluster.as(t, identity.Config())
	job := mpiJob(namespace, "audited")
	if err := ada.Create(t.Context(), mpiJob(namespace, "audited"), dryRun); err != nil {
		t.Fatal(err)
	}
	if err := ada.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	changed := job.DeepCopy()
	changed.Spec.SlotsPerWorker = new(int32(1))
	wantCauses(t, ada.Update(t.Context(), changed), wantCause{"spec.slotsPerWorker", immutable})
	job.Spec.RunPolicy.Suspend = new(true)
	if err := ada.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	// The API server asks again about an object that its cache shows late. A list waits for the
	// cache.
	if err := ada.List(t.Context(), &v2beta1.MPIJobList{}, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if err := ada.Delete(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	want := "create allowed 200, update refused 422, update allowed 200, delete allowed 200"
	eventually.Succeeds(t, "one line for each change, and none for the dry run", func() error {
		var got []string
		for _, line := range cluster.audit.About(t, "audited") {
			got = append(got, fmt.Sprintf("%v %v %v", line["verb"], line["decision"], line["code"]))
		}
		if text := strings.Join(got, ", "); text != want {
			return fmt.Errorf("the audit says %q, want %q", text, want)
		}
		return nil
	})
	for _, line := range cluster.audit.About(t, "audited") {
		if line["user"] != "ada" || line["kind"] != "MPIJob" || line["apiVersion"] != "kubeflow.org/v2beta1" || line["namespace"] != namespace ||
			!strings.Contains(fmt.Sprint(line["groups"]), "team-vision") || line["time"] == nil || line["requestID"] == nil {
			t.Errorf("the line %v does not say who did what where", line)
		}
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	if err := cluster.client.Create(t.Context(), mpiJob(namespace, "train"), dryRun); err != nil {
		t.Fatal(err)
	}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "train"}, &v2beta1.MPIJob{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run stored the job: %v", err)
	}
	bad := mpiJob(namespace, "train", func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(0)) })
	wantCauses(t, cluster.client.Create(t.Context(), bad, dryRun), wantCause{"spec.slotsPerWorker", ""})
}

func TestNamespacesCanOptOut(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, map[string]string{"training.kubeflow.org/admission": "disabled"})
	job := mpiJob(namespace, "train", func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(99)) })
	if err := cluster.client.Create(t.Context(), job); err != nil {
		t.Errorf("the label of the namespace does not help: %v", err)
	}
}

// Tests that need an operator of their own.
func TestOperatorsOwnSettings(t *testing.T) {
	settings := func(settings *config.Config) {
		settings.Limits.MaxWorkers = 3
		settings.Limits.MinCPU, settings.Limits.MinMemory = resourceOf("100m"), resourceOf("64Mi")
		settings.Admission.MPIJobDeprecation = config.DeprecationWarn
		settings.Admission.PodSecurity = config.PodSecurityWarn
	}
	cluster := startCluster(t, settings)
	namespace := cluster.namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "baseline"})
	cluster.warnings.take()
	small := mpiJob(namespace, "small", func(job *v2beta1.MPIJob) {
		job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(2))
		worker(job).Resources.Limits = resources("cpu", "100m", "memory", "64Mi")
		job.Spec.MPIReplicaSpecs["Worker"].Template.Spec.HostNetwork = true
	})
	if err := cluster.client.Create(t.Context(), small); err != nil {
		t.Errorf("the limits that were set do not hold: %v", err)
	}
	warned := strings.Join(cluster.warnings.take(), "\n")
	for _, want := range []string{"apiVersion: MPIJob is deprecated", "hostNetwork=true"} {
		if !strings.Contains(warned, want) {
			t.Errorf("no warning of %q in %q", want, warned)
		}
	}
	big := mpiJob(namespace, "big")
	wantCauses(t, cluster.client.Create(t.Context(), big), wantCause{workerAt + ".replicas", "Worker replicas must be between 2 and 3"})

	t.Run("a Secret that is lost is made anew", func(*testing.T) {
		// The outer test's, so that the operator lives on.
		cluster.operator.Stop(t)
		if err := cluster.client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: config.Default().Webhook.SecretName}}); err != nil {
			t.Fatal(err)
		}
		cluster.startOperator(t, settings)
	})
	t.Run("a certificate that is lost is made anew", func(t *testing.T) { certificateIsMadeAnew(t, cluster) })
	t.Run("nothing is stored unchecked when the operator is down", func(t *testing.T) { nothingIsStoredUnchecked(t, cluster, small) })
}

func certificateIsMadeAnew(t *testing.T, cluster *cluster) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: deployed.Namespace, Name: config.Default().Webhook.SecretName}
	if err := cluster.client.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	old := string(secret.Data["ca.crt"])
	secret.Data = nil
	if err := cluster.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "a new certificate", func() error {
		if err := cluster.client.Get(t.Context(), key, secret); err != nil {
			return err
		}
		if ca := string(secret.Data["ca.crt"]); ca == "" || ca == old {
			return fmt.Errorf("the secret has no new certificate")
		}
		return nil
	})
	cluster.waitUntilServed(t)
}

func nothingIsStoredUnchecked(t *testing.T, cluster *cluster, existing *v2beta1.MPIJob) {
	existing.Finalizers = []string{"example.com/wait"}
	// The certificate was made anew: whoever calls and whoever is called learn of it one
	// after the other.
	eventually.Succeeds(t, "the webhooks answer", func() error { return cluster.client.Update(t.Context(), existing) })
	cluster.operator.Stop(t)
	good := mpiJob(existing.Namespace, "good")
	err := cluster.client.Create(t.Context(), good)
	if !contains(err, `failed calling webhook "job-creator.kubeflow.org"`) {
		t.Errorf("want a message that names the webhook that is down, got: %v", err)
	}
	if err := cluster.client.Get(t.Context(), client.ObjectKeyFromObject(good), good); !apierrors.IsNotFound(err) {
		t.Errorf("the job was stored unchecked: %v", err)
	}
	if err := cluster.client.Delete(t.Context(), existing); err != nil {
		t.Errorf("a job cannot be deleted while the operator is down: %v", err)
	}
	if err := cluster.client.Patch(t.Context(), existing, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Errorf("a job cannot lose its finalizer while the operator is down: %v", err)
	}
}

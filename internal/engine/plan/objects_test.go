// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// everyPlan calls check with every plan that creates something.
func everyPlan(t *testing.T, check func(t *testing.T, tc whole, plan Plan)) {
	t.Helper()
	j := 0
	for name, tc := range plans {
		plan := tc.plan(t)
		if len(plan.Ensure)+len(plan.Pods) == 0 {
			continue
		}
		j++
		t.Run(name, func(t *testing.T) { check(t, tc, plan) })
	}
	if j < 10 {
		t.Errorf("only %d plans make something", j)
	}
}

func TestOwners(t *testing.T) {
	everyPlan(t, func(t *testing.T, tc whole, plan Plan) {
		j := tc.job()
		want := []metav1.OwnerReference{{
			APIVersion: "kubeflow.org/v2alpha1", Kind: "TrainJob", Name: "bert", UID: types.UID("5678"),
			Controller: new(true), BlockOwnerDeletion: new(true),
		}}
		if j.Name == "resnet" {
			// Kueue compares the version as text.
			want[0].APIVersion, want[0].Kind, want[0].Name, want[0].UID = "kubeflow.org/v2beta1", "MPIJob", "resnet", "1234"
		}
		for _, object := range plan.Ensure {
			if diff := cmp.Diff(want, object.GetOwnerReferences()); diff != "" {
				t.Errorf("owners of %s (-want +got):\n%s", describe(t, object), diff)
			}
			if object.GetNamespace() != "team-a" {
				t.Errorf("%s is of namespace %q", describe(t, object), object.GetNamespace())
			}
			for key, value := range Selector(j) {
				if object.GetLabels()[key] != value {
					t.Errorf("%s has the label %s=%s, want %s", describe(t, object), key, object.GetLabels()[key], value)
				}
			}
		}
	})
}

// A job of the other kind may have had the same name just before.
func TestSelectorsIncludeKind(t *testing.T) {
	found := 0
	everyPlan(t, func(t *testing.T, tc whole, plan Plan) {
		want := map[string]any{training.LabelJobName: tc.job().Name, training.LabelJobType: tc.job().Kind.Type()}
		for _, object := range slices.Concat(plan.Ensure, podObjects(plan)) {
			text, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			var content any
			if err := json.Unmarshal(text, &content); err != nil {
				t.Fatal(err)
			}
			for _, selector := range selectors(content) {
				found++
				if selector["app.kubernetes.io/name"] == "trireme" || selector["kubernetes.io/metadata.name"] == "trireme-system" {
					continue // the operator, which jobs report to
				}
				if diff := cmp.Diff(want, selector); diff != "" {
					t.Errorf("a selector of %s (-want +got):\n%s", describe(t, object), diff)
				}
			}
		}
	})
	if found < 3 {
		t.Errorf("only %d selectors were looked at", found)
	}
}

// selectors are the labels of all selectors in an object.
func selectors(content any) (found []map[string]any) {
	switch content := content.(type) {
	case map[string]any:
		for key, value := range content {
			labels, isMap := value.(map[string]any)
			if isMap && (key == "matchLabels" || key == "selector") {
				found = append(found, labels)
				continue
			}
			found = append(found, selectors(value)...)
		}
	case []any:
		for _, value := range content {
			found = append(found, selectors(value)...)
		}
	}
	return found
}

func TestEveryPod(t *testing.T) {
	everyPlan(t, func(t *testing.T, tc whole, plan Plan) {
		j := tc.job()
		theirs := j.Worker.Template.Annotations["note"] == "ours"
		for name, pod := range podsOf(plan) {
			// MPI does not work through a sidecar; older Istios read the one, newer ones
			// the other.
			if pod.Labels[training.IstioInject] != "false" || pod.Annotations[training.IstioInject] != "false" {
				t.Errorf("%s gets a sidecar of Istio's", name)
			}
			for key, value := range Selector(j) {
				if pod.Labels[key] != value {
					t.Errorf("%s has the label %s=%s, want %s", name, key, pod.Labels[key], value)
				}
			}
			role := pod.Labels[training.LabelReplicaType]
			if pod.Labels[training.LabelJobRole] != role || !slices.Contains([]string{"launcher", "worker", "initializer"}, role) {
				t.Errorf("%s has the roles %q and %q", name, role, pod.Labels[training.LabelJobRole])
			}
			if theirs {
				continue
			}
			if automount := pod.Spec.AutomountServiceAccountToken; automount == nil || *automount {
				t.Errorf("%s has a token of the API", name)
			}
			if role == training.RoleInitializer {
				continue
			}
			want := map[string]string{
				"MPIJOB_NAME": j.Name, "MPIJOB_ROLE": role, "K_MPI_JOB_ROLE": role, "MPIJOB_WORLD_SIZE": fmt.Sprint(j.WorldSize()),
			}
			environment := variables(container(pod))
			for key, value := range want {
				if environment[key] != value {
					t.Errorf("%s has %s=%q, want %q", name, key, environment[key], value)
				}
			}
			if search := fmt.Sprintf("%s-worker.team-a.svc.cluster.example", j.Name); !slices.Contains(pod.Spec.DNSConfig.Searches, search) {
				t.Errorf("%s searches %v for hosts, want %s in it", name, pod.Spec.DNSConfig.Searches, search)
			}
		}
	})
}

func TestWorldSizes(t *testing.T) {
	tests := map[string]struct {
		whole
		want string
	}{
		"workers times slots":             {whole{job: ofMPIJob(replicas(3))}, "12"},
		"with the launcher":               {whole{job: ofMPIJob(replicas(3), launcherRunsRanks)}, "16"},
		"the launcher alone":              {whole{job: ofMPIJob(noWorkers, launcherRunsRanks)}, "4"},
		"nodes times the runtime's slots": {whole{job: ofTrainJob(nodes(3))}, "24"},
		"nodes times the job's slots":     {whole{job: ofTrainJob(nodes(3), slots(2))}, "6"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for name, pod := range podsOf(tc.plan(t)) {
				if got := variables(container(pod))["MPIJOB_WORLD_SIZE"]; got != tc.want {
					t.Errorf("%s has a world of %s, want %s", name, got, tc.want)
				}
			}
		})
	}
}

// Other programs read these files, so they must not change.
func TestLauncherFiles(t *testing.T) {
	tests := map[string]struct {
		whole
		want string
	}{
		"an MPIJob":               {whole{job: ofMPIJob()}, "resnet-worker-0 slots=4\nresnet-worker-1 slots=4\n"},
		"an MPIJob of MPICH":      {whole{job: ofMPIJob(implementation(v2beta1.MPIImplementationMPICH))}, "resnet-worker-0:4\nresnet-worker-1:4\n"},
		"an MPIJob of Intel MPI":  {whole{job: ofMPIJob(implementation(v2beta1.MPIImplementationIntel))}, "resnet-worker-0:4\nresnet-worker-1:4\n"},
		"the launcher is first":   {whole{job: ofMPIJob(launcherRunsRanks)}, "resnet-launcher slots=4\nresnet-worker-0 slots=4\nresnet-worker-1 slots=4\n"},
		"the launcher is alone":   {whole{job: ofMPIJob(launcherRunsRanks, noWorkers)}, "resnet-launcher slots=4\n"},
		"workers are in order":    {whole{job: ofMPIJob(replicas(11))}, numbered("resnet-worker-%d slots=4\n", 11)},
		"a TrainJob":              {whole{job: ofTrainJob(nodes(2))}, "bert-worker-0-0 slots=8\nbert-worker-0-1 slots=8\n"},
		"a TrainJob, other slots": {whole{job: ofTrainJob(nodes(1), slots(3))}, "bert-worker-0-0 slots=3\n"},
		"a TrainJob of Intel MPI": {whole{job: ofTrainJob(nodes(1), func(_ *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.MLPolicy.MPIImplementation = v2alpha1.MPIImplementationIntelMPI
		})}, "bert-worker-0-0:8\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := one[*corev1.ConfigMap](t, tc.plan(t).Ensure).Data
			want := map[string]string{"hostfile": tc.want, "discover_hosts.sh": "#!/bin/sh\nexec /opt/trireme/mpi-agent hosts\n"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

func numbered(form string, count int) string {
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, form, i)
	}
	return text.String()
}

// The operator creates keys, and only if there are none yet.
func TestSecretHasNoKeys(t *testing.T) {
	for kind, tc := range map[string]struct {
		whole
		want string
	}{"MPIJob": {whole{job: ofMPIJob()}, "resnet-ssh-key"}, "TrainJob": {whole{job: ofTrainJob()}, "bert-ssh"}} {
		t.Run(kind, func(t *testing.T) {
			plan := tc.plan(t)
			secret := one[*corev1.Secret](t, plan.Ensure)
			if secret.Name != tc.want || len(secret.Data) != 1 || string(secret.Data[protocol.StatusCA]) != "the CA" || len(secret.StringData) > 0 || secret.Type != corev1.SecretTypeOpaque {
				t.Errorf("%s is of type %s, with %v and %v", secret.Name, secret.Type, secret.Data, secret.StringData)
			}
			for name, pod := range podsOf(plan) {
				mounts := slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
					return volume.Secret != nil && volume.Secret.SecretName == tc.want
				})
				if !mounts {
					t.Errorf("%s does not mount %s", name, tc.want)
				}
			}
		})
	}
}

// Kueue suspends and resumes a workload, so the plan must not set the field.
func TestWorkloadsAreNotSuspended(t *testing.T) {
	everyPlan(t, func(t *testing.T, tc whole, plan Plan) {
		for _, object := range plan.Ensure {
			switch object := object.(type) {
			case *jobset.JobSet:
				if object.Spec.Suspend != nil {
					t.Errorf("suspend is %t", *object.Spec.Suspend)
				}
				for i := range object.Spec.ReplicatedJobs {
					replicated := &object.Spec.ReplicatedJobs[i]
					if len(replicated.DependsOn) > 0 || replicated.Template.Spec.Suspend != nil {
						t.Errorf("%s waits: a gang whose pods wait for each other never has a place", replicated.Name)
					}
				}
			case *batchv1.Job:
				if object.Spec.Suspend != nil {
					t.Errorf("suspend of %s is %t", object.Name, *object.Spec.Suspend)
				}
			}
		}
	})
}

func TestQueueLabelsReachTheJobSet(t *testing.T) {
	plan := whole{job: ofTrainJob(inQueue)}.plan(t)
	want := merged(Selector(trainJob()), map[string]string{
		"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/priority-class": "urgent", "kueue.x-k8s.io/max-exec-time-seconds": "3600",
	})
	set := one[*jobset.JobSet](t, plan.Ensure)
	if diff := cmp.Diff(want, set.Labels); diff != "" {
		t.Errorf("labels of the JobSet (-want +got):\n%s", diff)
	}
	// Kueue would queue a pod with the label separately.
	if len(plan.Pods) == 0 {
		t.Error("no pods")
	}
	for name, pod := range podsOf(plan) {
		if queue, found := pod.Labels[training.LabelQueue]; found {
			t.Errorf("%s waits in %s", name, queue)
		}
	}
}

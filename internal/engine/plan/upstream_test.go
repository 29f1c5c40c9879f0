// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	upstream "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// Scripts, Kueue and programs in the pods depend on the MPIJobs of mpi-operator. The
// names that its builder of v0.8.2 sets stay the same.
func TestMPIOperatorCompatibility(t *testing.T) {
	tests := map[string]struct {
		options []option
		// wantIndexes are the indexes of pods, by name.
		wantIndexes map[string]string
		wantHidden  bool
	}{
		"ranks run on workers": {
			wantIndexes: map[string]string{"resnet-worker-0": "0", "resnet-worker-1": "1", "resnet-launcher-r0": ""},
			wantHidden:  true,
		},
		// Kueue needs a unique index for each pod with ranks.
		"ranks run on the launcher too": {
			options:     []option{launcherRunsRanks},
			wantIndexes: map[string]string{"resnet-launcher-r0": "0", "resnet-worker-0": "1", "resnet-worker-1": "2"},
		},
		"in spite of the templates": {
			options:     []option{both(ownNames), launcherRunsRanks},
			wantIndexes: map[string]string{"resnet-launcher-r0": "0", "resnet-worker-0": "1", "resnet-worker-1": "2"},
		},
		"in an image with an sshd": {
			options:     []option{asUser},
			wantIndexes: map[string]string{"resnet-worker-0": "0", "resnet-worker-1": "1", "resnet-launcher-r0": ""},
			wantHidden:  true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := whole{job: ofMPIJob(tc.options...)}.plan(t)
			got := map[string]string{}
			for name, pod := range podsOf(plan) {
				got[name] = pod.Labels[upstream.ReplicaIndexLabel]
				wantUpstreamLabels(t, name, pod)
			}
			if diff := cmp.Diff(tc.wantIndexes, got); diff != "" {
				t.Errorf("indexes of pods (-want +got):\n%s", diff)
			}
			launcher := launcherIn(t, plan)
			if launcher.Spec.Hostname != "resnet-launcher" || launcher.Labels[batchv1.JobNameLabel] != "resnet-launcher" {
				t.Errorf("the launcher is %s of the Job %s", launcher.Spec.Hostname, launcher.Labels[batchv1.JobNameLabel])
			}
			// A launcher that requests no GPUs must not get the GPUs of its node.
			environment := variables(container(launcher))
			_, hidden := environment["NVIDIA_DRIVER_CAPABILITIES"]
			if hidden != tc.wantHidden {
				t.Errorf("the launcher's GPUs are hidden: %t", hidden)
			}
			if service := one[*corev1.Service](t, plan.Ensure); service.Spec.ClusterIP != corev1.ClusterIPNone || !service.Spec.PublishNotReadyAddresses {
				t.Errorf("the Service has %s, and waits for pods to be ready: %t", service.Spec.ClusterIP, !service.Spec.PublishNotReadyAddresses)
			}
		})
	}
}

func wantUpstreamLabels(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	role := "worker"
	if name == "resnet-launcher-r0" {
		role = "launcher"
	}
	selector := labels.SelectorFromSet(labels.Set{
		upstream.OperatorNameLabel: upstream.OperatorName, upstream.JobNameLabel: "resnet", upstream.JobRoleLabel: role,
	})
	if !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("%s does not match %s; it has %v", name, selector, pod.Labels)
	}
	if got := variables(container(pod))["K_MPI_JOB_ROLE"]; got != role {
		t.Errorf("%s has the role %q, want %q", name, got, role)
	}
}

// mpirun in an image with its own sshd has the same variables as with mpi-operator.
func TestMPIOperatorVariables(t *testing.T) {
	slots := "4"
	tests := map[v2beta1.MPIImplementation]map[string]string{
		v2beta1.MPIImplementationOpenMPI: {
			"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
			"OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": slots,
		},
		v2beta1.MPIImplementationIntel: {
			"I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "-o ConnectionAttempts=10", "I_MPI_PERHOST": slots,
		},
		v2beta1.MPIImplementationMPICH: {"HYDRA_HOST_FILE": "/etc/mpi/hostfile", "HYDRA_LAUNCH_EXTRA_ARGS": "-o ConnectionAttempts=10"},
	}
	for name, want := range tests {
		t.Run(string(name), func(t *testing.T) {
			plan := whole{job: ofMPIJob(implementation(name), asUser)}.plan(t)
			got := variables(container(launcherIn(t, plan)))
			for key, value := range want {
				if got[key] != value {
					t.Errorf("%s is %q, want %q", key, got[key], value)
				}
			}
		})
	}
}

// Every worker of mpi-operator is a pod with this name and this host name.
func TestMPIOperatorWorkerNames(t *testing.T) {
	found := sets.New[string]()
	for _, pod := range (whole{job: ofMPIJob(replicas(12))}).plan(t).Pods {
		if pod.Labels[training.LabelReplicaType] != training.RoleWorker {
			continue
		}
		found.Insert(pod.Name)
		if pod.Spec.Hostname != pod.Name || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s is called %s, and restarted %s", pod.Name, pod.Spec.Hostname, pod.Spec.RestartPolicy)
		}
	}
	for index := range 12 {
		if name := fmt.Sprintf("resnet-worker-%d", index); !found.Has(name) {
			t.Errorf("no %s among %v", name, sets.List(found))
		}
	}
	if found.Len() != 12 {
		t.Errorf("%d workers, want 12", found.Len())
	}
}

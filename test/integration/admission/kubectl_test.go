// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

// kubectl runs kubectl as an administrator and returns what it prints.
func (cluster *cluster) kubectl(t testing.TB, input string, arguments ...string) (string, error) {
	t.Helper()
	admin, err := cluster.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := admin.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(cluster.environment.BinaryAssetsDirectory, "kubectl"), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+deployed.Write(t, "kubeconfig", kubeconfig), "HOME="+t.TempDir())
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestKubectlGet(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	cluster.create(t, trainJob(namespace, "mnist"))
	job := mpiJob(namespace, "resnet", func(job *v2beta1.MPIJob) { job.Spec.MPIImplementation = "MPICH" })
	cluster.create(t, job)
	job.Status.Progress = training.Progress{
		Phase: training.PhaseFailed, ReadyWorkers: "3/4", ReadyWorkerCount: 3, WorkerCount: 4, FailureReason: training.FailureWorker, Duration: "5m30s",
		LauncherPodStatus: &training.PodStatus{Phase: "Failed"},
	}
	if err := cluster.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		arguments string
		want      []string
	}{
		{"get mj", []string{"NAME STATE WORKERS MPI AGE", "resnet Failed 3/4 MPICH"}},
		{"get mpij -o wide", []string{"NAME STATE WORKERS MPI AGE LAUNCHER FAILURE DURATION", "Failed WorkerFailed 5m30s"}},
		{"get tj", []string{"NAME STATE WORKERS RUNTIME AGE", "mnist mpi"}},
		{"get tr", []string{"NAME MPI IMPLEMENTATION NODES SLOTS AGE", "mpi OpenMPI"}},
		{"get ctr", []string{"No resources found"}},
		{"get training", []string{"mpijob.kubeflow.org/resnet", "trainjob.kubeflow.org/mnist", "trainingruntime.kubeflow.org/mpi"}},
		{"get all", []string{"mpijob.kubeflow.org/resnet", "trainjob.kubeflow.org/mnist"}},
	} {
		output, err := cluster.kubectl(t, "", append(strings.Fields(tc.arguments), "-n", namespace)...)
		if err != nil {
			t.Errorf("kubectl %s: %v\n%s", tc.arguments, err, output)
		}
		flat := strings.Join(strings.Fields(output), " ")
		for _, want := range tc.want {
			if !strings.Contains(flat, want) && !(tc.arguments == "get ctr" && strings.Contains(flat, "MPI IMPLEMENTATION")) {
				t.Errorf("kubectl %s does not show %q:\n%s", tc.arguments, want, output)
			}
		}
	}
}

// kubectl explain teaches: every field of ours is described.
func TestKubectlExplain(t *testing.T) {
	cluster := sharedCluster.For(t)
	for field, want := range map[string]string{
		"mpijob.spec.slotsPerWorker":                                 "From 1 to 8 unless the operator is configured otherwise",
		"mpijob.spec.mpiReplicaSpecs.template.spec.containers.image": "Container image name",
		"trainjob.spec.trainer.numNodes":                             "number of workers. The launcher is a further pod.",
		"trainjob.spec.initializer.storage.claimName":                "name of an existing PersistentVolumeClaim",
		"trainjob.status.failureReason":                              "GangSchedulingTimeout LauncherFailed WorkerFailed SSHConnectionFailed",
		"trainjob.status.timeline.step":                              "FirstRankUp: the first rank has been started, as the agents report while the job runs",
		"clustertrainingruntime.spec.podGroupPolicy.coscheduling":    "PodGroup of scheduler-plugins",
		"trainingruntime.spec.constraints.requiredNodeLabels":        "labels that the nodes of the workers must have",
		"trainingruntime.spec.template.spec.replicatedJobs.template": "Its first container runs the training",
	} {
		output, err := cluster.kubectl(t, "", "explain", field)
		if err != nil || !strings.Contains(strings.Join(strings.Fields(output), " "), want) {
			t.Errorf("kubectl explain %s does not say %q (%v):\n%s", field, want, err, output)
		}
	}
}

// What a person sees who made several mistakes.
func TestKubectlShowsEveryFault(t *testing.T) {
	cluster := sharedCluster.For(t)
	job := `{apiVersion: kubeflow.org/v2alpha1, kind: TrainJob, metadata: {name: train},
		spec: {runtimeRef: {kind: ClusterTrainingRuntime, name: nobodys}, trainer: {numNodes: 65, image: a/b}}}`
	output, err := cluster.kubectl(t, job, "create", "-n", cluster.namespace(t, nil), "-f", "-")
	want := `The TrainJob "train" is invalid: 
* spec.runtimeRef.name: Invalid value: "nobodys": Runtime nobodys not found in namespace
* spec.trainer.numNodes: Invalid value: 65: numNodes must be between 1 and 64
`
	if err == nil || output != want {
		t.Errorf("kubectl printed (%v):\n%s\nwant:\n%s", err, output, want)
	}
}

// Two people can each own a part of a job's lists.
func TestServerSideApplyMerges(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	runtime := func(container, variable string) string {
		return `{apiVersion: kubeflow.org/v2alpha1, kind: TrainingRuntime, metadata: {name: mpi},
			spec: {mlPolicy: {mpiImplementation: OpenMPI}, template: {spec: {replicatedJobs: [
				{name: launcher, template: {metadata: {annotations: {sidecar.istio.io/inject: "false"}}, spec: {containers: [{name: launcher}]}}},
				{name: worker, template: {metadata: {annotations: {sidecar.istio.io/inject: "false"}}, spec: {containers: [{name: worker, image: "a/` + container + `", env: [{name: ` + variable + `, value: "1"}]}]}}}
			]}}}}`
	}
	if output, err := cluster.kubectl(t, runtime("b", "FIRST"), "apply", "--server-side", "--field-manager=one", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if output, err := cluster.kubectl(t, runtime("b", "SECOND"), "apply", "--server-side", "--field-manager=two", "-n", namespace, "-f", "-"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	output, err := cluster.kubectl(t, "", "get", "tr", "mpi", "-n", namespace,
		"-o", "jsonpath={.spec.template.spec.replicatedJobs[*].name} {.spec.template.spec.replicatedJobs[1].template.spec.containers[0].env[*].name}")
	if err != nil || output != "launcher worker FIRST SECOND" {
		t.Errorf("after two people applied their parts there is %q (%v)", output, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package kubeflow

import (
	"fmt"
	"strings"
	"testing"
)

func TestListRuntimes(t *testing.T) {
	wantIn(t, runSDK(t, "runtimes", "default"), "openmpi-trireme mpi 1 mpirun", "torch-distributed torch 1 bash")
}

func TestTrainWithCommand(t *testing.T) {
	output := runSDK(t, "command", namespace(t))
	wantIn(t, output, "status: Complete", "steps: node-0", "-launcher-0-0", "-node-0-0", "left: []")
	if strings.Contains(output, "events: 0") {
		t.Errorf("the job has no events:\n%s", output)
	}
}

// A runtime that Trainer ships starts an sshd on its nodes. It works with an image that has
// none.
func TestShippedRuntime(t *testing.T) {
	wantIn(t, runSDK(t, "shipped", namespace(t)), "status: Complete", "-launcher-0-0", "-node-0-0")
}

// The function runs once on each rank, under the user that the namespace allows.
func TestTrainWithFunction(t *testing.T) {
	output := runSDK(t, "function", namespace(t))
	wantIn(t, output, "status: Complete", "left: []")
	for rank := range 4 {
		// Once while the logs are followed, and once after the end.
		if line := fmt.Sprintf("hello from rank %d of 4, sum 6, uid ", rank); strings.Count(output, line) != 2 || strings.Contains(output, line+"0 ") {
			t.Errorf("rank %d has printed %q %d times, want twice, and not as root:\n%s", rank, line, strings.Count(output, line), output)
		}
	}
}

// The SDK calls the launcher node-0, and the nodes node-1 and so on. A deleted job leaves
// no pods.
func TestRunningJob(t *testing.T) {
	space := namespace(t)
	wantIn(t, runSDK(t, "running", space), "steps: node-0=Running node-1=Running node-2=Running", "left: []")
	shell(t, "bin/cluster kubectl wait --for=delete pods --all --timeout=120s -n "+space)
}

// Trainer shows why a job failed, in Trireme's words.
func TestOutOfMemory(t *testing.T) {
	space := namespace(t)
	wantIn(t, runSDK(t, "memory", space), "status: Failed")
	failed := shell(t, "bin/cluster kubectl get trainjobs.trainer.kubeflow.org -n "+space+
		` -o jsonpath='{range .items[*].status.conditions[?(@.type=="Failed")]}{.reason}: {.message}{end}'`)
	wantIn(t, failed, "WorkerFailed: ", "orker 1 (pod ", "256Mi", "Raise the memory limit")
}

// Progress that a program reports is in the status and in the annotation of the TrainJob.
func TestProgress(t *testing.T) {
	space := namespace(t)
	wantIn(t, runSDK(t, "progress", space), "answer: 200", "status: Complete")
	shown := shell(t, "bin/cluster kubectl get trainjobs.trainer.kubeflow.org -n "+space+
		` -o jsonpath='{.items[0].status.trainerStatus} {.items[0].metadata.annotations.trainer\.opendatahub\.io/trainerStatus}'`)
	wantIn(t, shown, `"progressPercentage":45`, `"metrics":[{"name":"loss","value":"0.23"}]`, `"trainMetrics":{"loss":0.23}`)
}

// JobSets of other runtimes are not touched: JobSet's own controller runs them.
func TestTorchRuntime(t *testing.T) {
	space := namespace(t)
	wantIn(t, runSDK(t, "torch", space), "logs: torch runs on 1 node")
	touched := shell(t, "bin/cluster kubectl get jobsets,pods -n "+space+" -o yaml")
	if strings.Contains(touched, "training.kubeflow.org/") {
		t.Errorf("Trireme has changed objects of a runtime that does not name it:\n%s", touched)
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// measuring stands in for a metrics server: its API, kept as objects.
const measuring = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, for a test"}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {kind: PodMetrics, listKind: PodMetricsList, plural: pods, singular: pod}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// topOutput is what the test reads of `odh top -o json`.
type topOutput struct {
	Jobs []struct {
		Name, Kind, Status               string
		Asked, Used                      map[string]string
		WaitedSeconds                    int64
		GPUSecondsIdle, GPUSecondsQueued float64
	}
	Total struct {
		Asked, Used      map[string]string
		GPUSecondsQueued float64
	}
}

func readTop(t *testing.T, namespace string) (read topOutput) {
	t.Helper()
	output, _ := odh(t, 0, namespace, "top", "-o", "json")
	if err := json.Unmarshal([]byte(output), &read); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return read
}

// One job runs and another waits for GPUs that no node has.
func TestTop(t *testing.T) {
	works := failFast(implementations[1].job(2, "import time; time.sleep(300)"))
	works.Name = "works"
	running := submit(t, works)
	waits := failFast(implementations[1].job(2, allreduce))
	waits.Name = "waits"
	worker := &waits.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0]
	worker.Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}
	waiting := submitTo(t, running.client, running.namespace, waits)
	running.until("the job runs and its workers are ready", 2*time.Minute, func(progress training.Progress) bool {
		return progress.Phase == training.PhaseRunning && progress.ReadyWorkers == "2/2"
	})
	waiting.until("the job waits", time.Minute, func(progress training.Progress) bool { return progress.Phase == training.PhasePending })
	time.Sleep(2 * time.Second)

	table, note := odh(t, 0, running.namespace, "top", "-o", "wide")
	contains(t, table, "GPU-S-IDLE", "GPU-S-QUEUED", "waits", "MPIJob", "Pending", "8", "works", "MPIJob", "Running", "2/2", "TOTAL")
	if strings.Count(note, "metrics.k8s.io") < 1 || strings.Count(note, "\n") != 1 {
		t.Errorf("the note is %q", note)
	}
	seen := readTop(t, running.namespace)
	if len(seen.Jobs) != 2 || seen.Total.Asked["nvidia.com/gpu"] != "8" || seen.Total.Asked["cpu"] != "60m" {
		t.Fatalf("%+v", seen)
	}
	for _, job := range seen.Jobs {
		if job.Used != nil {
			t.Errorf("nobody measures, and %s uses %v", job.Name, job.Used)
		}
	}
	if queued := seen.Jobs[0]; queued.WaitedSeconds < 2 || queued.GPUSecondsQueued < 16 || queued.GPUSecondsIdle != 0 {
		t.Errorf("the job that waits: %+v", queued)
	}
	later := readTop(t, running.namespace)
	if later.Jobs[1].WaitedSeconds != seen.Jobs[1].WaitedSeconds {
		t.Errorf("the job that runs waits on: %+v", later.Jobs[1])
	}
	odh(t, 3, running.namespace, "top", "nobody")
	wantMeasured(t, running)
}

// wantMeasured fails unless what a metrics API says of the job's pods is shown.
func wantMeasured(t *testing.T, job *theJob) {
	t.Helper()
	apply := func(object string) error {
		output, err := shell(fmt.Sprintf("bin/cluster kubectl apply -f - <<'END'\n%s\nEND", object))
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}
	t.Cleanup(func() { _, _ = shell("bin/cluster kubectl delete crd pods.metrics.k8s.io --ignore-not-found") })
	if err := apply(measuring); err != nil {
		t.Fatal(err)
	}
	for i, pod := range job.pods(training.RoleWorker) {
		eventually.Succeeds(t, "the metrics API is served", func() error {
			return apply(fmt.Sprintf(`{"apiVersion":"metrics.k8s.io/v1beta1","kind":"PodMetrics","metadata":{"namespace":%q,"name":%q,"labels":{%q:%q,%q:%q}},
				"timestamp":"2026-01-01T00:00:00Z","window":"15s","containers":[{"name":"worker","usage":{"cpu":"%d500m","memory":"512Mi"}}]}`,
				job.namespace, pod.Name, training.LabelJobName, job.object.GetName(), training.LabelJobType, training.JobTypeMPIJob, i+1))
		})
	}
	table, note := odh(t, 0, job.namespace, "top", "mpijob/"+job.object.GetName())
	if !regexp.MustCompile(`(?m)^works +MPIJob +Running +0 +0\.03 +4 +96Mi +1Gi `).MatchString(table) || note != "" {
		t.Errorf("what is used is not shown:\n%s%s", table, note)
	}
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// large is a job with a thousand workers.
func large(workers int32) whole {
	return whole{job: ofMPIJob(replicas(workers), both(ownEverything)), has: hasCoscheduling}
}

// The number of objects does not depend on the machine, time does.
func TestThousandWorkers(t *testing.T) {
	plan := large(1000).plan(t)
	counts := map[string]int{}
	for _, object := range slices.Concat(plan.Ensure, podObjects(plan)) {
		counts[kindOf(t, object).Kind]++
	}
	want := map[string]int{"Service": 1, "ConfigMap": 1, "Secret": 1, "PodGroup": 1, "Pod": 1001, "Job": 1}
	for kind, count := range want {
		if counts[kind] != count {
			t.Errorf("%d of %s, want %d", counts[kind], kind, count)
		}
	}
	if len(plan.Ensure) != 5 {
		t.Errorf("%d objects besides pods: %v", len(plan.Ensure), counts)
	}
	hostfile := one[*corev1.ConfigMap](t, plan.Ensure).Data["hostfile"]
	if lines := strings.Count(hostfile, "\n"); lines != 1000 || len(hostfile) > 1<<19 {
		t.Errorf("a hostfile of %d lines and %d bytes", lines, len(hostfile))
	}
	if plan := (whole{job: ofTrainJob(nodes(1000))}).plan(t); len(plan.Ensure) != 4 || len(plan.Pods) != 1001 {
		t.Errorf("a TrainJob of 1,000 nodes is %v and %d pods", describeAll(t, plan.Ensure), len(plan.Pods))
	}
}

// Each worker costs the same: twice as many must not cost four times as much.
func TestCostIsLinear(t *testing.T) {
	allocations := func(workers int32) float64 {
		j := large(workers).job()
		env := environment(t, j, hasCoscheduling, ImageVolume)
		return testing.AllocsPerRun(3, func() { Of(j, State{Stage: Active, Workload: workloadUID}, env) })
	}
	few, many := allocations(500), allocations(1000)
	if many > 2.1*few {
		t.Errorf("500 workers cost %.0f allocations, 1,000 cost %.0f", few, many)
	}
	// It is 61 now, nearly all of it the copy of the template: 120 would be a second
	// copy.
	if perWorker := many / 1000; perWorker > 120 {
		t.Errorf("a worker costs %.0f allocations", perWorker)
	}
}

var planned1000 Plan

// BenchmarkPlan1000 is the plan of an MPIJob with 1,000 workers.
func BenchmarkPlan1000(b *testing.B) {
	j := large(1000).job()
	env := environment(b, j, hasCoscheduling, ImageVolume)
	b.ReportAllocs()
	for b.Loop() {
		planned1000 = Of(j, State{Stage: Active, Workload: workloadUID}, env)
	}
}

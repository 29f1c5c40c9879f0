// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestExplain(t *testing.T) {
	type quotas = []corev1.ResourceQuota
	gpus := quotaOf("gpus", list("requests.nvidia.com/gpu", "32"), list("requests.nvidia.com/gpu", "24"))
	tests := map[string]struct {
		demand  *Demand
		quotas  quotas
		running int
		want    []string
	}{
		"the example of the requirements, with the sum done right": {
			demand: workers(20, requests("nvidia.com/gpu", "2")).withLauncher(requests("cpu", "2")),
			quotas: quotas{gpus}, running: 3,
			want: []string{
				"Details: Requested 40 GPUs (20 workers × 2 GPUs), but namespace quota is 32 GPUs.",
				"Current usage: 24 GPUs (3 running jobs)",
				"Available: 8 GPUs",
				"",
				"Suggestions:",
				"1. Reduce worker count to 4 (8 GPUs total)",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
		"a launcher with a GPU, one of everything": {
			demand: workers(1, requests("nvidia.com/gpu", "1")).withLauncher(requests("nvidia.com/gpu", "1")),
			quotas: quotas{quotaOf("gpus", list("requests.nvidia.com/gpu", "2"), list("requests.nvidia.com/gpu", "1"))}, running: 1,
			want: []string{
				"Details: Requested 2 GPUs (1 worker × 1 GPU + launcher 1 GPU), but namespace quota is 2 GPUs.",
				"Current usage: 1 GPU (1 running job)",
				"Available: 1 GPU",
				"",
				"Suggestions:",
				"1. No smaller worker count fits: 1 worker needs 2 GPUs",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
		"the launcher is part of the smaller total": {
			demand: workers(20, requests("nvidia.com/gpu", "2")).withLauncher(requests("nvidia.com/gpu", "1")),
			quotas: quotas{gpus},
			want: []string{
				"Details: Requested 41 GPUs (20 workers × 2 GPUs + launcher 1 GPU), but namespace quota is 32 GPUs.",
				"Current usage: 24 GPUs (0 running jobs)",
				"Available: 8 GPUs",
				"",
				"Suggestions:",
				"1. Reduce worker count to 3 (7 GPUs total)",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
		"several resources": {
			demand: workers(4, requests("nvidia.com/gpu", "3", "memory", "20Gi", "cpu", "500m"), limits("memory", "20Gi")),
			quotas: quotas{quotaOf("team", list("requests.nvidia.com/gpu", "8", "requests.memory", "64Gi", "limits.memory", "32Gi", "requests.cpu", "1", "pods", "3"), nil)},
			want: []string{
				"Details: Requested 12 GPUs (4 workers × 3 GPUs), but namespace quota is 8 GPUs.",
				"Current usage: 0 GPUs (0 running jobs)",
				"Available: 8 GPUs",
				"Details: Requested 80Gi memory limit (4 workers × 20Gi memory limit), but namespace quota is 32Gi memory limit.",
				"Current usage: 0 memory limit (0 running jobs)",
				"Available: 32Gi memory limit",
				"Details: Requested 4 pods (4 workers × 1 pod), but namespace quota is 3 pods.",
				"Current usage: 0 pods (0 running jobs)",
				"Available: 3 pods",
				"Details: Requested 2 CPUs (4 workers × 500m CPUs), but namespace quota is 1 CPU.",
				"Current usage: 0 CPUs (0 running jobs)",
				"Available: 1 CPU",
				"Details: Requested 80Gi memory (4 workers × 20Gi memory), but namespace quota is 64Gi memory.",
				"Current usage: 0 memory (0 running jobs)",
				"Available: 64Gi memory",
				"",
				"Suggestions:",
				"1. Reduce worker count to 1 (3 GPUs total)",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
		"what is in the way is named when none fits": {
			demand: workers(20, requests("nvidia.com/gpu", "2", "memory", "64Gi")).withAtLeast(2),
			quotas: quotas{gpus, quotaOf("memory", list("memory", "100Gi"), nil)},
			want: []string{
				"Details: Requested 40 GPUs (20 workers × 2 GPUs), but namespace quota is 32 GPUs.",
				"Current usage: 24 GPUs (0 running jobs)",
				"Available: 8 GPUs",
				"Details: Requested 1280Gi memory (20 workers × 64Gi memory), but namespace quota is 100Gi memory.",
				"Current usage: 0 memory (0 running jobs)",
				"Available: 100Gi memory",
				"",
				"Suggestions:",
				"1. No smaller worker count fits: 2 workers need 128Gi memory",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
		"objects that no number of workers changes": {
			demand: workers(4).withObjects(map[corev1.ResourceName]int64{"services": 1}).withAtLeast(2),
			quotas: quotas{quotaOf("objects", list("services", "5"), list("services", "5"))}, running: 5,
			want: []string{
				"Details: Requested 1 Service, but namespace quota is 5 Services.",
				"Current usage: 5 Services (5 running jobs)",
				"Available: 0 Services",
				"",
				"Suggestions:",
				"1. No smaller worker count fits: 2 workers need 1 Service",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
		"a quota that is over-used": {
			demand: workers(4, requests("amd.com/gpu", "1")),
			quotas: quotas{quotaOf("gpus", list("requests.amd.com/gpu", "8"), list("requests.amd.com/gpu", "9"))},
			want: []string{
				"Details: Requested 4 amd.com/gpu (4 workers × 1 amd.com/gpu), but namespace quota is 8 amd.com/gpu.",
				"Current usage: 9 amd.com/gpu (0 running jobs)",
				"Available: 0 amd.com/gpu",
				"",
				"Suggestions:",
				"1. No smaller worker count fits: 1 worker needs 1 amd.com/gpu",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
		"amounts beyond 64 bits": {
			demand: workers(20, requests("cpu", "1e29")),
			quotas: quotas{quotaOf("cpus", list("count/secrets", "1", "cpu", "1e30"), list("cpu", "3e29"))},
			want: []string{
				"Details: Requested 2e30 CPUs (20 workers × 100e27 CPUs), but namespace quota is 1e30 CPUs.",
				"Current usage: 300e27 CPUs (0 running jobs)",
				"Available: 700e27 CPUs",
				"",
				"Suggestions:",
				"1. Reduce worker count to 7 (700e27 CPUs total)",
				"2. Wait for existing jobs to complete",
				"3. Request quota increase from administrator",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Explain(tc.demand, Shortages(tc.demand, tc.quotas), FittingWorkers(tc.demand, tc.quotas), tc.running)
			if diff := cmp.Diff(tc.want, strings.Split(got, "\n")); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBrief(t *testing.T) {
	tests := map[string]struct {
		resources                    []corev1.ResourceName
		wantRequested, wantAvailable string
	}{
		"nothing":      {},
		"one resource": {resources: []corev1.ResourceName{"requests.nvidia.com/gpu"}, wantRequested: "2 GPUs", wantAvailable: "1 GPU"},
		"several": {
			resources:     []corev1.ResourceName{"requests.nvidia.com/gpu", "requests.cpu", "memory", "count/pods", "limits.cpu", "secrets", "count/jobs.batch", "requests.ephemeral-storage"},
			wantRequested: "2 GPUs and 2 CPUs and 2 memory and 2 pods and 2 cpu limit and 2 Secrets and 2 jobs.batch and 2 ephemeral-storage",
			wantAvailable: "1 GPU and 1 CPU and 1 memory and 1 pod and 1 cpu limit and 1 Secret and 1 jobs.batch and 1 ephemeral-storage",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var shortages []Shortage
			for _, resource := range tc.resources {
				shortages = append(shortages, Shortage{Resource: resource, Requested: amountOf("2"), Available: amountOf("1")})
			}
			requested, available := Brief(shortages)
			if diff := cmp.Diff([]string{tc.wantRequested, tc.wantAvailable}, []string{requested, available}); diff != "" {
				t.Errorf("in brief (-want +got):\n%s", diff)
			}
		})
	}
}

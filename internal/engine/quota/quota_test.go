// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestShortages(t *testing.T) {
	type quotas = []corev1.ResourceQuota
	tests := map[string]struct {
		demand *Demand
		quotas quotas
		want   []Shortage
	}{
		"a namespace without quotas has enough": {
			demand: workers(100, requests("cpu", "100")),
		},
		"workers and launcher are added up": {
			demand: workers(20, requests("nvidia.com/gpu", "2")).withLauncher(requests("nvidia.com/gpu", "1")),
			quotas: quotas{quotaOf("gpus", list("requests.nvidia.com/gpu", "32"), list("requests.nvidia.com/gpu", "24"))},
			want: []Shortage{{Quota: "gpus", Resource: "requests.nvidia.com/gpu", Requested: amountOf("41"), PerWorker: amountOf("2"),
				Launcher: amountOf("1"), Hard: amountOf("32"), Used: amountOf("24"), Available: amountOf("8")}},
		},
		"an exact fit is allowed": {
			demand: workers(4, requests("nvidia.com/gpu", "2", "cpu", "1500m")).withLauncher(requests("cpu", "2")),
			quotas: quotas{quotaOf("all", list("requests.nvidia.com/gpu", "32", "cpu", "10", "pods", "7"), list("requests.nvidia.com/gpu", "24", "cpu", "2", "pods", "2"))},
		},
		"a thousandth of a CPU too many": {
			demand: workers(4, requests("cpu", "1500m")),
			quotas: quotas{quotaOf("cpus", list("cpu", "6"), list("cpu", "1m"))},
			want: []Shortage{{Quota: "cpus", Resource: "cpu", Requested: amountOf("6"), PerWorker: amountOf("1500m"),
				Hard: amountOf("6"), Used: amountOf("1m"), Available: amountOf("5999m")}},
		},
		"the tightest of several quotas is named": {
			demand: workers(4, requests("cpu", "4")),
			quotas: quotas{
				quotaOf("wide", list("cpu", "10"), nil),
				quotaOf("tight", list("requests.cpu", "12"), list("requests.cpu", "8")),
				quotaOf("middle", list("cpu", "5"), nil),
			},
			want: []Shortage{{Quota: "tight", Resource: "requests.cpu", Requested: amountOf("16"), PerWorker: amountOf("4"),
				Hard: amountOf("12"), Used: amountOf("8"), Available: amountOf("4")}},
		},
		"GPUs come first, then by name": {
			demand: workers(2, requests("cpu", "4", "memory", "1Gi", "nvidia.com/gpu", "1")),
			quotas: quotas{quotaOf("all", list("cpu", "1", "memory", "1Gi", "requests.nvidia.com/gpu", "1", "pods", "1"), nil)},
			want: []Shortage{
				{Quota: "all", Resource: "requests.nvidia.com/gpu", Requested: amountOf("2"), PerWorker: amountOf("1"), Hard: amountOf("1"), Available: amountOf("1")},
				{Quota: "all", Resource: "cpu", Requested: amountOf("8"), PerWorker: amountOf("4"), Hard: amountOf("1"), Available: amountOf("1")},
				{Quota: "all", Resource: "memory", Requested: amountOf("2Gi"), PerWorker: amountOf("1Gi"), Hard: amountOf("1Gi"), Available: amountOf("1Gi")},
				{Quota: "all", Resource: "pods", Requested: amountOf("2"), PerWorker: amountOf("1"), Hard: amountOf("1"), Available: amountOf("1")},
			},
		},
		"pods count the launcher too": {
			demand: workers(4).withLauncher(),
			quotas: quotas{quotaOf("pods", list("pods", "4"), nil), quotaOf("objects", list("count/pods", "4"), nil)},
			want: []Shortage{
				{Quota: "objects", Resource: "count/pods", Requested: amountOf("5"), PerWorker: amountOf("1"), Launcher: amountOf("1"), Hard: amountOf("4"), Available: amountOf("4")},
				{Quota: "pods", Resource: "pods", Requested: amountOf("5"), PerWorker: amountOf("1"), Launcher: amountOf("1"), Hard: amountOf("4"), Available: amountOf("4")},
			},
		},
		"AMD's GPUs are counted apart from NVIDIA's": {
			demand: workers(4, requests("amd.com/gpu", "2")),
			quotas: quotas{quotaOf("gpus", list("requests.amd.com/gpu", "7", "requests.nvidia.com/gpu", "1"), nil)},
			want: []Shortage{{Quota: "gpus", Resource: "requests.amd.com/gpu", Requested: amountOf("8"), PerWorker: amountOf("2"),
				Hard: amountOf("7"), Available: amountOf("7")}},
		},
		"keys of GPUs that Kubernetes does not count": {
			demand: workers(4, requests("nvidia.com/gpu", "2"), limits("nvidia.com/gpu", "2")),
			quotas: quotas{quotaOf("gpus", list("nvidia.com/gpu", "1", "limits.nvidia.com/gpu", "1"), nil)},
		},
		"limits are counted by limits": {
			demand: workers(2, requests("cpu", "1"), limits("cpu", "4", "memory", "8Gi")),
			quotas: quotas{quotaOf("limits", list("requests.cpu", "2", "limits.cpu", "7", "limits.memory", "16Gi"), nil)},
			want: []Shortage{{Quota: "limits", Resource: "limits.cpu", Requested: amountOf("8"), PerWorker: amountOf("4"),
				Hard: amountOf("7"), Available: amountOf("7")}},
		},
		"a limit without a request is also the request": {
			demand: workers(2, limits("memory", "8Gi")),
			quotas: quotas{quotaOf("memory", list("requests.memory", "15Gi"), nil)},
			want: []Shortage{{Quota: "memory", Resource: "requests.memory", Requested: amountOf("16Gi"), PerWorker: amountOf("8Gi"),
				Hard: amountOf("15Gi"), Available: amountOf("15Gi")}},
		},
		"an init container counts where it is larger": {
			demand: workers(2, requests("cpu", "2", "memory", "4Gi"), initContainer("init", list("cpu", "3", "memory", "1Gi"))),
			quotas: quotas{quotaOf("all", list("cpu", "5", "memory", "8Gi"), nil)},
			want: []Shortage{{Quota: "all", Resource: "cpu", Requested: amountOf("6"), PerWorker: amountOf("3"),
				Hard: amountOf("5"), Available: amountOf("5")}},
		},
		"a sidecar counts beside the containers": {
			demand: workers(2, requests("cpu", "2"), sidecar("proxy", list("cpu", "1")), initContainer("init", list("cpu", "3"))),
			quotas: quotas{quotaOf("cpus", list("cpu", "7"), nil)},
			want: []Shortage{{Quota: "cpus", Resource: "cpu", Requested: amountOf("8"), PerWorker: amountOf("4"),
				Hard: amountOf("7"), Available: amountOf("7")}},
		},
		"objects are counted once a job": {
			demand: workers(4).withObjects(map[corev1.ResourceName]int64{"services": 1, "secrets": 2, "configmaps": 1}),
			quotas: quotas{quotaOf("objects", list("services", "5", "secrets", "10", "configmaps", "1"), list("services", "5", "secrets", "9"))},
			want: []Shortage{
				{Quota: "objects", Resource: "secrets", Requested: amountOf("2"), Hard: amountOf("10"), Used: amountOf("9"), Available: amountOf("1")},
				{Quota: "objects", Resource: "services", Requested: amountOf("1"), Hard: amountOf("5"), Used: amountOf("5"), Available: amountOf("0")},
			},
		},
		"a quota with a scope counts no objects": {
			demand: workers(1).withObjects(map[corev1.ResourceName]int64{"count/secrets": 1}),
			quotas: quotas{quotaOf("objects", list("count/secrets", "0"), nil, inScopes(corev1.ResourceQuotaScopeNotTerminating))},
		},
		"a quota that is over-used has nothing to give, and no less": {
			demand: workers(1, requests("nvidia.com/gpu", "1")),
			quotas: quotas{quotaOf("gpus", list("requests.nvidia.com/gpu", "4"), list("requests.nvidia.com/gpu", "6"))},
			want: []Shortage{{Quota: "gpus", Resource: "requests.nvidia.com/gpu", Requested: amountOf("1"), PerWorker: amountOf("1"),
				Hard: amountOf("4"), Used: amountOf("6"), Available: amountOf("0")}},
		},
		"a quota that is over-used does not hold who asks for none": {
			demand: workers(4, requests("cpu", "1")),
			quotas: quotas{quotaOf("gpus", list("requests.nvidia.com/gpu", "4"), list("requests.nvidia.com/gpu", "6"))},
		},
		"usage that is not counted yet is none": {
			demand: workers(2, requests("cpu", "1")),
			quotas: quotas{quotaOf("cpus", list("cpu", "2"), nil), quotaOf("others", list("cpu", "2"), list("pods", "9"))},
		},
		"amounts beyond 64 bits": {
			demand: workers(20, requests("cpu", "1e29")),
			quotas: quotas{quotaOf("cpus", list("cpu", "1e30"), list("cpu", "1"))},
			want: []Shortage{{Quota: "cpus", Resource: "cpu", Requested: amountOf("2e30"), PerWorker: amountOf("1e29"),
				Hard: amountOf("1e30"), Used: amountOf("1"), Available: amountOf("999999999999999999999999999999")}},
		},
		"more digits than 64 bits hold": {
			demand: workers(3, requests("cpu", "1234567890123456789012345")),
			quotas: quotas{quotaOf("cpus", list("cpu", "3703703670370370367037034"), nil)},
			want: []Shortage{{Quota: "cpus", Resource: "cpu", Requested: amountOf("3703703670370370367037035"), PerWorker: amountOf("1234567890123456789012345"),
				Hard: amountOf("3703703670370370367037034"), Available: amountOf("3703703670370370367037034")}},
		},
		"amounts beyond 64 bits that fit": {
			demand: workers(100, requests("cpu", "9e18")),
			quotas: quotas{quotaOf("cpus", list("cpu", "1e30"), nil)},
		},
		"every launcher counts, though there should be one": {
			demand: &Demand{Launcher: Pods{Count: 2, Spec: podOf(requests("cpu", "2"))}},
			quotas: quotas{quotaOf("cpus", list("cpu", "3"), nil)},
			want:   []Shortage{{Quota: "cpus", Resource: "cpu", Requested: amountOf("4"), Launcher: amountOf("4"), Hard: amountOf("3"), Available: amountOf("3")}},
		},
		"no workers ask for nothing": {
			demand: workers(0, requests("cpu", "1")),
			quotas: quotas{quotaOf("cpus", list("cpu", "0", "pods", "0"), nil)},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Shortages(tc.demand, tc.quotas)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("shortages (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFittingWorkers(t *testing.T) {
	gpus := func(hard, used string) corev1.ResourceQuota {
		return quotaOf("gpus", list("requests.nvidia.com/gpu", hard), list("requests.nvidia.com/gpu", used))
	}
	tests := map[string]struct {
		demand *Demand
		quotas []corev1.ResourceQuota
		want   int64
	}{
		"as many as there are GPUs for": {
			demand: workers(20, requests("nvidia.com/gpu", "2")), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 4,
		},
		"what is over is not enough for one more": {
			demand: workers(20, requests("nvidia.com/gpu", "3")), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 2,
		},
		"the launcher takes its part": {
			demand: workers(20, requests("nvidia.com/gpu", "2")).withLauncher(requests("nvidia.com/gpu", "1")),
			quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 3,
		},
		"the tightest quota decides": {
			demand: workers(20, requests("nvidia.com/gpu", "2", "cpu", "4")),
			quotas: []corev1.ResourceQuota{gpus("32", "24"), quotaOf("cpus", list("cpu", "9"), nil)}, want: 2,
		},
		"one fewer than was asked for":      {demand: workers(5, requests("nvidia.com/gpu", "2")), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 4},
		"one worker":                        {demand: workers(2, requests("nvidia.com/gpu", "8")), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 1},
		"a worker asks for too much":        {demand: workers(2, requests("nvidia.com/gpu", "9")), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 0},
		"nothing is left":                   {demand: workers(2, requests("nvidia.com/gpu", "1")), quotas: []corev1.ResourceQuota{gpus("24", "24")}, want: 0},
		"over-used":                         {demand: workers(2, requests("nvidia.com/gpu", "1")), quotas: []corev1.ResourceQuota{gpus("24", "25")}, want: 0},
		"fewer than the least allowed":      {demand: workers(20, requests("nvidia.com/gpu", "8")).withAtLeast(2), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 0},
		"just the least allowed":            {demand: workers(20, requests("nvidia.com/gpu", "4")).withAtLeast(2), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 2},
		"there is no fewer than so few":     {demand: workers(2, requests("nvidia.com/gpu", "8")).withAtLeast(2), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 0},
		"there is no fewer, even with room": {demand: workers(2, requests("nvidia.com/gpu", "1")).withAtLeast(2), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 0},
		"one worker cannot be fewer":        {demand: workers(1, requests("nvidia.com/gpu", "9")), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 0},
		"the launcher does not fit": {
			demand: workers(20, requests("cpu", "1")).withLauncher(requests("nvidia.com/gpu", "9")), quotas: []corev1.ResourceQuota{gpus("32", "24")}, want: 0,
		},
		"objects do not fit": {
			demand: workers(20).withObjects(map[corev1.ResourceName]int64{"secrets": 1}),
			quotas: []corev1.ResourceQuota{quotaOf("objects", list("secrets", "1", "pods", "9"), list("secrets", "1"))}, want: 0,
		},
		"a million workers": {
			demand: workers(1_000_000, requests("cpu", "1")), quotas: []corev1.ResourceQuota{quotaOf("cpus", list("cpu", "765432"), nil)}, want: 765432,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			asked := tc.demand.Workers.Count
			if got := FittingWorkers(tc.demand, tc.quotas); got != tc.want {
				t.Errorf("%d workers fit, want %d", got, tc.want)
			}
			if tc.demand.Workers.Count != asked {
				t.Errorf("the demand was changed to %d workers", tc.demand.Workers.Count)
			}
		})
	}
}

// Quantities of more digits than 64 bits hold are pointers inside: a sum in place
// would show in the informer's cache that the quotas come from.
func TestInputsAreNotChanged(t *testing.T) {
	const amount, more = "1234567890123456789012345", "9876543210987654321098765"
	demand := workers(20, requests("cpu", amount), limits("cpu", more), initContainer("init", list("cpu", more))).withLauncher(requests("cpu", amount))
	quotas := []corev1.ResourceQuota{quotaOf("cpus", list("cpu", more, "limits.cpu", more, "pods", "1"), list("cpu", amount, "limits.cpu", amount, "pods", "4"))}
	spec, launcher, before := demand.Workers.Spec.DeepCopy(), demand.Launcher.Spec.DeepCopy(), quotas[0].DeepCopy()
	shortages, fitting := Shortages(demand, quotas), FittingWorkers(demand, quotas)
	explanation := Explain(demand, shortages, fitting, 1)
	if diff := cmp.Diff(explanation, Explain(demand, shortages, fitting, 1)); diff != "" {
		t.Errorf("explained twice, the words differ:\n%s", diff)
	}
	if diff := cmp.Diff(shortages, Shortages(demand, quotas)); diff != "" {
		t.Errorf("asked twice, the answer differs:\n%s", diff)
	}
	if diff := cmp.Diff(before, &quotas[0]); diff != "" {
		t.Errorf("the quota was changed:\n%s", diff)
	}
	if diff := cmp.Diff(spec, demand.Workers.Spec) + cmp.Diff(launcher, demand.Launcher.Spec); diff != "" {
		t.Errorf("the pods were changed:\n%s", diff)
	}
}

// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestUnstatedResources(t *testing.T) {
	tests := map[string]struct {
		pod   *corev1.PodSpec
		hard  corev1.ResourceList
		scope corev1.ResourceQuotaScope
		want  []Unstated
	}{
		"all is stated": {
			pod:  podOf(requests("cpu", "1", "memory", "1Gi"), limits("cpu", "1", "memory", "1Gi")),
			hard: list("cpu", "9", "memory", "9Gi", "requests.cpu", "9", "requests.memory", "9Gi", "limits.cpu", "9", "limits.memory", "9Gi"),
		},
		"nothing is stated": {
			pod:  podOf(),
			hard: list("cpu", "9", "memory", "9Gi", "requests.cpu", "9", "requests.memory", "9Gi", "limits.cpu", "9", "limits.memory", "9Gi"),
			want: []Unstated{
				{"quota", "cpu", "main"}, {"quota", "limits.cpu", "main"}, {"quota", "limits.memory", "main"},
				{"quota", "memory", "main"}, {"quota", "requests.cpu", "main"}, {"quota", "requests.memory", "main"},
			},
		},
		"a request of nothing is stated": {
			pod: podOf(requests("cpu", "0")), hard: list("cpu", "9"),
		},
		"a request is no limit": {
			pod: podOf(requests("cpu", "1")), hard: list("limits.cpu", "9"),
			want: []Unstated{{"quota", "limits.cpu", "main"}},
		},
		"every container must state it, init containers and sidecars too": {
			pod:  podOf(requests("cpu", "1"), beside("logs", nil), initContainer("init", nil), sidecar("proxy", nil)),
			hard: list("cpu", "9"),
			want: []Unstated{{"quota", "cpu", "init"}, {"quota", "cpu", "proxy"}, {"quota", "cpu", "logs"}},
		},
		"other resources need not be stated": {
			pod: podOf(), hard: list("pods", "9", "requests.nvidia.com/gpu", "9", "requests.ephemeral-storage", "9Gi", "requests.storage", "9Gi", "secrets", "9"),
		},
		"a pod out of scope need not state anything": {
			pod: podOf(), hard: list("cpu", "9"), scope: corev1.ResourceQuotaScopeTerminating,
		},
		"resources of the pod as a whole stand for its containers'": {
			pod: podOf(whole(corev1.ResourceRequirements{Requests: list("cpu", "1")})), hard: list("cpu", "9", "limits.memory", "9Gi"),
		},
		"resources of the pod as a whole that say nothing stand for nothing": {
			pod: podOf(whole(corev1.ResourceRequirements{})), hard: list("cpu", "9"),
			want: []Unstated{{"quota", "cpu", "main"}},
		},
		"no pod": {hard: list("cpu", "9")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			quota := quotaOf("quota", tc.hard, nil)
			if tc.scope != "" {
				quota.Spec.Scopes = []corev1.ResourceQuotaScope{tc.scope}
			}
			if diff := cmp.Diff(tc.want, UnstatedResources(tc.pod, []corev1.ResourceQuota{quota})); diff != "" {
				t.Errorf("unstated (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnstatedResourcesNamesEveryQuota(t *testing.T) {
	quotas := []corev1.ResourceQuota{quotaOf("one", list("cpu", "9"), nil), quotaOf("two", list("limits.cpu", "9"), nil)}
	want := []Unstated{{"one", "cpu", "main"}, {"two", "limits.cpu", "main"}}
	if diff := cmp.Diff(want, UnstatedResources(podOf(), quotas)); diff != "" {
		t.Errorf("unstated (-want +got):\n%s", diff)
	}
}

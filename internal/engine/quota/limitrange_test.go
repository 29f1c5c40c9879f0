// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func rangeOf(name string, items ...corev1.LimitRangeItem) corev1.LimitRange {
	return corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.LimitRangeSpec{Limits: items}}
}

func perContainer(item corev1.LimitRangeItem) corev1.LimitRange {
	item.Type = corev1.LimitTypeContainer
	return rangeOf("range", item)
}

func perPod(item corev1.LimitRangeItem) corev1.LimitRange {
	item.Type = corev1.LimitTypePod
	return rangeOf("range", item)
}

func TestWithLimitRanges(t *testing.T) {
	defaults := perContainer(corev1.LimitRangeItem{DefaultRequest: list("cpu", "1", "memory", "1Gi"), Default: list("cpu", "4", "memory", "2Gi")})
	tests := map[string]struct {
		pod                         *corev1.PodSpec
		ranges                      []corev1.LimitRange
		wantRequests, wantLimits    corev1.ResourceList
		wantInit, wantInitLimits    corev1.ResourceList
		wantWhole, wantWholeLimited corev1.ResourceList
	}{
		"without ranges, limits become requests": {
			pod:          podOf(requests("cpu", "1"), limits("cpu", "2", "nvidia.com/gpu", "1")),
			wantRequests: list("cpu", "1", "nvidia.com/gpu", "1"), wantLimits: list("cpu", "2", "nvidia.com/gpu", "1"),
		},
		"defaults fill in what is missing": {
			pod: podOf(), ranges: []corev1.LimitRange{defaults},
			wantRequests: list("cpu", "1", "memory", "1Gi"), wantLimits: list("cpu", "4", "memory", "2Gi"),
		},
		"what is stated stays": {
			pod: podOf(requests("cpu", "3", "memory", "1Mi"), limits("memory", "1Mi")), ranges: []corev1.LimitRange{defaults},
			wantRequests: list("cpu", "3", "memory", "1Mi"), wantLimits: list("cpu", "4", "memory", "1Mi"),
		},
		"a limit of the pod's is the request before a default is": {
			pod: podOf(limits("cpu", "8")), ranges: []corev1.LimitRange{defaults},
			wantRequests: list("cpu", "8", "memory", "1Gi"), wantLimits: list("cpu", "8", "memory", "2Gi"),
		},
		"init containers get defaults too": {
			pod: podOf(requests("cpu", "1", "memory", "1Gi"), limits("cpu", "1", "memory", "1Gi"), initContainer("init", list("cpu", "2"))), ranges: []corev1.LimitRange{defaults},
			wantRequests: list("cpu", "1", "memory", "1Gi"), wantLimits: list("cpu", "1", "memory", "1Gi"),
			wantInit: list("cpu", "2", "memory", "1Gi"), wantInitLimits: list("cpu", "4", "memory", "2Gi"),
		},
		"the first of two ranges wins": {
			pod: podOf(), ranges: []corev1.LimitRange{defaults, perContainer(corev1.LimitRangeItem{DefaultRequest: list("cpu", "9", "nvidia.com/gpu", "1")})},
			wantRequests: list("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "1"), wantLimits: list("cpu", "4", "memory", "2Gi"),
		},
		"only what is for containers is a default": {
			pod: podOf(), ranges: []corev1.LimitRange{rangeOf("range", corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Default: list("storage", "1Gi")})},
		},
		"limits of the pod as a whole become its requests, where containers have none": {
			pod:          podOf(requests("memory", "1Gi"), whole(corev1.ResourceRequirements{Limits: list("cpu", "4", "memory", "8Gi")})),
			wantRequests: list("memory", "1Gi"),
			wantWhole:    list("cpu", "4", "memory", "1Gi"), wantWholeLimited: list("cpu", "4", "memory", "8Gi"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			got := WithLimitRanges(tc.pod, tc.ranges)
			want := before.DeepCopy()
			want.Containers[0].Resources = corev1.ResourceRequirements{Requests: tc.wantRequests, Limits: tc.wantLimits}
			if tc.wantInit != nil {
				want.InitContainers[0].Resources = corev1.ResourceRequirements{Requests: tc.wantInit, Limits: tc.wantInitLimits}
			}
			if tc.wantWhole != nil {
				want.Resources = &corev1.ResourceRequirements{Requests: tc.wantWhole, Limits: tc.wantWholeLimited}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pod as stored (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.pod); diff != "" {
				t.Errorf("the pod that was asked about was changed:\n%s", diff)
			}
		})
	}
}

func TestOutOfRange(t *testing.T) {
	tests := map[string]struct {
		pod    *corev1.PodSpec
		ranges []corev1.LimitRange
		want   []string
	}{
		"without ranges anything goes": {pod: podOf()},
		"at the most and at the least": {
			pod:    podOf(requests("cpu", "1"), limits("cpu", "4")),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{Min: list("cpu", "1"), Max: list("cpu", "4"), MaxLimitRequestRatio: list("cpu", "4")})},
		},
		"a limit above the most": {
			pod:    podOf(requests("nvidia.com/gpu", "17"), limits("nvidia.com/gpu", "17")),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{Max: list("nvidia.com/gpu", "16")})},
			want: []string{
				"container main has a limit of 17 nvidia.com/gpu; at most 16 is allowed (LimitRange range)",
				"container main requests 17 nvidia.com/gpu; at most 16 is allowed (LimitRange range)",
			},
		},
		"a most without a limit": {
			pod:    podOf(requests("memory", "1Gi")),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{Max: list("memory", "256Gi")})},
			want:   []string{"container main must have a limit of memory, at most 256Gi (LimitRange range)"},
		},
		"a request below the least": {
			pod:    podOf(requests("cpu", "100m")),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{Min: list("cpu", "1")})},
			want:   []string{"container main requests 100m cpu; at least 1 is required (LimitRange range)"},
		},
		"a least without a request": {
			pod:    podOf(),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{Min: list("cpu", "1")})},
			want:   []string{"container main must request cpu, at least 1 (LimitRange range)"},
		},
		"a limit too far above the request": {
			pod:    podOf(requests("cpu", "2"), limits("cpu", "3001m")),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu", "1500m")})},
			want:   []string{"container main has a limit of 3001m cpu for a request of 2; at most 1500m times the request is allowed (LimitRange range)"},
		},
		"a ratio to nothing": {
			pod:    podOf(requests("cpu", "0"), limits("cpu", "3")),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu", "2", "memory", "2")})},
			want: []string{
				"container main must have a request and a limit of cpu (LimitRange range)",
				"container main must have a request and a limit of memory (LimitRange range)",
			},
		},
		"every container is looked at": {
			pod:    podOf(requests("cpu", "1"), beside("logs", list("cpu", "10m")), initContainer("init", list("cpu", "20m"))),
			ranges: []corev1.LimitRange{perContainer(corev1.LimitRangeItem{Min: list("cpu", "1")})},
			want: []string{
				"container init requests 20m cpu; at least 1 is required (LimitRange range)",
				"container logs requests 10m cpu; at least 1 is required (LimitRange range)",
			},
		},
		"a pod is the sum of its containers": {
			pod: podOf(requests("cpu", "3"), limits("cpu", "3"), beside("logs", list("cpu", "3"))),
			ranges: []corev1.LimitRange{
				perPod(corev1.LimitRangeItem{Max: list("cpu", "5")}),
				perContainer(corev1.LimitRangeItem{Min: list("cpu", "3")}),
			},
			want: []string{"the pod requests 6 cpu; at most 5 is allowed (LimitRange range)"},
		},
		"a pod whose only limit is below the least": {
			pod:    podOf(requests("cpu", "1"), limits("cpu", "1"), beside("logs", list("cpu", "5"))),
			ranges: []corev1.LimitRange{perPod(corev1.LimitRangeItem{Min: list("cpu", "4")})},
			want:   []string{"the pod has a limit of 1 cpu; at least 4 is required (LimitRange range)"},
		},
		"a pod as large as its largest init container": {
			pod:    podOf(requests("memory", "1Gi"), initContainer("init", list("memory", "8Gi"))),
			ranges: []corev1.LimitRange{perPod(corev1.LimitRangeItem{Min: list("memory", "8Gi")})},
		},
		"every range is looked at": {
			pod: podOf(requests("cpu", "1", "memory", "1Mi")),
			ranges: []corev1.LimitRange{
				rangeOf("one", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list("cpu", "2")}),
				rangeOf("two", corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: list("memory", "2Mi")}),
			},
			want: []string{
				"container main requests 1 cpu; at least 2 is required (LimitRange one)",
				"container main requests 1Mi memory; at least 2Mi is required (LimitRange two)",
			},
		},
		"claims are not pods": {
			pod:    podOf(),
			ranges: []corev1.LimitRange{rangeOf("range", corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage", "1Gi")})},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, OutOfRange(tc.pod, tc.ranges)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}

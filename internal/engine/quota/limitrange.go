// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// WithLimitRanges returns the pod as Kubernetes stores it: requests default to limits,
// and both to those of the namespace's LimitRanges.
func WithLimitRanges(pod *corev1.PodSpec, ranges []corev1.LimitRange) *corev1.PodSpec {
	pod = job.WithRequestsFromLimits(pod)
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			forEachItem(ranges, corev1.LimitTypeContainer, func(_ string, item *corev1.LimitRangeItem) {
				job.FillResources(&containers[i].Resources.Requests, item.DefaultRequest)
				job.FillResources(&containers[i].Resources.Limits, item.Default)
			})
		}
	}
	return pod
}

// OutOfRange returns messages for the violations of LimitRanges by a pod that
// WithLimitRanges returned.
func OutOfRange(pod *corev1.PodSpec, ranges []corev1.LimitRange) []string {
	var violations []string
	forEachItem(ranges, corev1.LimitTypeContainer, func(name string, item *corev1.LimitRangeItem) {
		for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
			for i := range containers {
				subject := fmt.Sprintf("container %s", containers[i].Name)
				violations = append(violations, outOfItem(subject, name, item, containers[i].Resources.Requests, containers[i].Resources.Limits)...)
			}
		}
	})
	forEachItem(ranges, corev1.LimitTypePod, func(name string, item *corev1.LimitRangeItem) {
		violations = append(violations, outOfItem("the pod", name, item, job.Requests(pod), job.Limits(pod))...)
	})
	return violations
}

func outOfItem(subject, rangeName string, item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []string {
	var violations []string
	violate := func(format string, arguments ...any) {
		violations = append(violations, fmt.Sprintf(format, arguments...)+fmt.Sprintf(" (LimitRange %s)", rangeName))
	}
	for _, name := range job.ResourceNames(item.MaxLimitRequestRatio) {
		ratio, request, limit := item.MaxLimitRequestRatio[name], requests[name], limits[name]
		if request.IsZero() || limit.IsZero() {
			violate("%s must have a request and a limit of %s", subject, name)
		} else if aboveRatio(limit, request, &ratio) {
			violate("%s has a limit of %s %s for a request of %s; at most %s times the request is allowed",
				subject, limit.String(), name, request.String(), ratio.String())
		}
	}
	for _, name := range job.ResourceNames(item.Max) {
		most := item.Max[name]
		if limit, stated := limits[name]; !stated {
			violate("%s must have a limit of %s, at most %s", subject, name, most.String())
		} else if limit.Cmp(most) > 0 {
			violate("%s has a limit of %s %s; at most %s is allowed", subject, limit.String(), name, most.String())
		}
		if request, stated := requests[name]; stated && request.Cmp(most) > 0 {
			violate("%s requests %s %s; at most %s is allowed", subject, request.String(), name, most.String())
		}
	}
	for _, name := range job.ResourceNames(item.Min) {
		least := item.Min[name]
		if request, stated := requests[name]; !stated {
			violate("%s must request %s, at least %s", subject, name, least.String())
		} else if request.Cmp(least) < 0 {
			violate("%s requests %s %s; at least %s is required", subject, request.String(), name, least.String())
		} else if limit, stated := limits[name]; stated && limit.Cmp(least) < 0 {
			// Of a pod: one container may have a small limit and another none.
			violate("%s has a limit of %s %s; at least %s is required", subject, limit.String(), name, least.String())
		}
	}
	return violations
}

// aboveRatio compares thousandths, the precision of Kubernetes.
func aboveRatio(limit, request resource.Quantity, ratio *resource.Quantity) bool {
	limit, request = limit.DeepCopy(), request.DeepCopy()
	limit.Mul(1000)
	request.Mul(ratio.MilliValue())
	return limit.Cmp(request) > 0
}

func forEachItem(ranges []corev1.LimitRange, kind corev1.LimitType, do func(rangeName string, item *corev1.LimitRangeItem)) {
	for i := range ranges {
		for j := range ranges[i].Spec.Limits {
			if item := &ranges[i].Spec.Limits[j]; item.Type == kind {
				do(ranges[i].Name, item)
			}
		}
	}
}

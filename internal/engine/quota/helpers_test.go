// SPDX-License-Identifier: Apache-2.0

package quota

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// list is made of names and amounts in turn.
func list(amounts ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return list
}

func amountOf(text string) resource.Quantity { return resource.MustParse(text) }

// quotaOf is a quota as Kubernetes shows it once usage has been counted.
func quotaOf(name string, hard, used corev1.ResourceList, options ...func(*corev1.ResourceQuota)) corev1.ResourceQuota {
	quota := corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ResourceQuotaSpec{Hard: hard},
		Status:     corev1.ResourceQuotaStatus{Hard: hard, Used: used},
	}
	for _, option := range options {
		option(&quota)
	}
	return quota
}

func inScopes(scopes ...corev1.ResourceQuotaScope) func(*corev1.ResourceQuota) {
	return func(quota *corev1.ResourceQuota) { quota.Spec.Scopes = scopes }
}

func ofClass(operator corev1.ScopeSelectorOperator, classes ...string) func(*corev1.ResourceQuota) {
	return func(quota *corev1.ResourceQuota) {
		quota.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: classes},
		}}
	}
}

type podOption func(*corev1.PodSpec)

// podOf is a pod whose container main states nothing unless told.
func podOf(options ...podOption) *corev1.PodSpec {
	pod := &corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func requests(amounts ...string) podOption {
	return func(pod *corev1.PodSpec) { pod.Containers[0].Resources.Requests = list(amounts...) }
}

func limits(amounts ...string) podOption {
	return func(pod *corev1.PodSpec) { pod.Containers[0].Resources.Limits = list(amounts...) }
}

func beside(name string, requests corev1.ResourceList) podOption {
	return func(pod *corev1.PodSpec) {
		pod.Containers = append(pod.Containers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}})
	}
}

func initContainer(name string, requests corev1.ResourceList) podOption {
	return func(pod *corev1.PodSpec) {
		pod.InitContainers = append(pod.InitContainers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests}})
	}
}

func sidecar(name string, requests corev1.ResourceList) podOption {
	return func(pod *corev1.PodSpec) {
		initContainer(name, requests)(pod)
		pod.InitContainers[len(pod.InitContainers)-1].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
}

// whole sets the resources that the containers of a pod share.
func whole(resources corev1.ResourceRequirements) podOption {
	return func(pod *corev1.PodSpec) { pod.Resources = &resources }
}

func priority(class string) podOption {
	return func(pod *corev1.PodSpec) { pod.PriorityClassName = class }
}

func workers(count int64, options ...podOption) *Demand {
	return &Demand{Workers: Pods{Count: count, Spec: podOf(options...)}}
}

func (d *Demand) withLauncher(options ...podOption) *Demand {
	d.Launcher = Pods{Count: 1, Spec: podOf(options...)}
	return d
}

func (d *Demand) withObjects(objects map[corev1.ResourceName]int64) *Demand {
	d.Objects = objects
	return d
}

func (d *Demand) withAtLeast(workers int64) *Demand {
	d.MinWorkers = workers
	return d
}

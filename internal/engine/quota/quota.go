// SPDX-License-Identifier: Apache-2.0

// Package quota predicts whether the ResourceQuotas and LimitRanges of a namespace allow
// the pods of a job, before any pod exists. It is pure.
//
// The result is advice: pods of other jobs may be created in between, and Kubernetes
// decides when each pod is created.
package quota

import (
	"maps"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Demand is what a job requests from its namespace.
type Demand struct {
	Launcher, Workers Pods
	// Objects are the numbers of the job's other objects, by their names in a
	// ResourceQuota.
	Objects map[corev1.ResourceName]int64
	// MinWorkers is the minimum number of workers.
	MinWorkers int64
}

// Pods are a number of equal pods.
type Pods struct {
	Count int64
	// Spec is the pod as Kubernetes stores it: requests default to limits, and both to
	// those of LimitRanges.
	Spec *corev1.PodSpec
}

// Shortage is a resource that a quota has too little of.
type Shortage struct {
	Quota     string
	Resource  corev1.ResourceName
	Requested resource.Quantity
	PerWorker resource.Quantity
	Launcher  resource.Quantity
	Hard      resource.Quantity
	Used      resource.Quantity
	Available resource.Quantity
}

// Shortages returns one shortage for each resource: that of the quota with the least
// available.
func Shortages(demand *Demand, quotas []corev1.ResourceQuota) []Shortage {
	tightest := map[corev1.ResourceName]Shortage{}
	weights := weigh(demand)
	for i := range quotas {
		for _, shortage := range weights.shortages(demand, &quotas[i]) {
			resource := canonical(shortage.Resource)
			if known, found := tightest[resource]; !found || shortage.Available.Cmp(known.Available) < 0 {
				tightest[resource] = shortage
			}
		}
	}
	return slices.SortedFunc(maps.Values(tightest), func(a, b Shortage) int {
		if byGPU := compareFirst(isGPU(a.Resource), isGPU(b.Resource)); byGPU != 0 {
			return byGPU
		}
		return strings.Compare(string(a.Resource), string(b.Resource))
	})
}

// compareFirst orders true before false.
func compareFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

// FittingWorkers returns the largest number of workers, below that of the demand, that
// the quotas allow; 0 if it would be below the minimum.
func FittingWorkers(demand *Demand, quotas []corev1.ResourceQuota) int64 {
	smaller, weights := *demand, weigh(demand)
	fits := func(workers int64) bool {
		smaller.Workers.Count = workers
		for i := range quotas {
			if len(weights.shortages(&smaller, &quotas[i])) > 0 {
				return false
			}
		}
		return true
	}
	least := max(demand.MinWorkers, 1)
	if demand.Workers.Count <= least || !fits(least) {
		return 0
	}
	tooMany := sort.Search(int(demand.Workers.Count-least), func(more int) bool { return !fits(least + int64(more)) })
	return least + int64(tooMany) - 1
}

// weights are the usage of a launcher and a worker. They are computed once, because they
// are the same for every quota and number of workers, and a pod can be large.
type weights struct{ launcher, worker usage }

func weigh(demand *Demand) weights {
	return weights{launcher: newUsage(demand.Launcher.Spec), worker: newUsage(demand.Workers.Spec)}
}

func (w weights) shortages(demand *Demand, quota *corev1.ResourceQuota) []Shortage {
	workersCount, launcherCounts := matches(quota, demand.Workers.Spec), matches(quota, demand.Launcher.Spec)
	var shortages []Shortage
	for _, name := range job.ResourceNames(quota.Spec.Hard) {
		shortage := Shortage{Quota: quota.Name, Resource: name, Hard: quota.Spec.Hard[name], Used: quota.Status.Used[name].DeepCopy()}
		if workersCount && demand.Workers.Count > 0 {
			shortage.PerWorker = w.worker.of(name)
			total := shortage.PerWorker.DeepCopy()
			total.Mul(demand.Workers.Count)
			shortage.Requested.Add(total)
		}
		if launcherCounts && demand.Launcher.Count > 0 {
			shortage.Launcher = w.launcher.of(name)
			shortage.Launcher.Mul(demand.Launcher.Count)
			shortage.Requested.Add(shortage.Launcher)
		}
		if !scoped(quota) {
			shortage.Requested.Add(*resource.NewQuantity(demand.Objects[name], resource.DecimalSI))
		}
		shortage.Available = shortage.Hard.DeepCopy()
		shortage.Available.Sub(shortage.Used)
		if shortage.Available.Sign() < 0 {
			shortage.Available = *resource.NewQuantity(0, shortage.Hard.Format)
		}
		if shortage.Requested.Cmp(shortage.Available) > 0 {
			shortages = append(shortages, shortage)
		}
	}
	return shortages
}

// usage is what one pod uses of a quota.
type usage struct{ requests, limits corev1.ResourceList }

func newUsage(pod *corev1.PodSpec) usage {
	if pod == nil {
		return usage{}
	}
	return usage{requests: job.Requests(pod), limits: job.Limits(pod)}
}

// of returns what Kubernetes counts for a key of a quota. For extended resources it only
// counts requests, and only with the prefix "requests.": keys such as nvidia.com/gpu and
// limits.nvidia.com/gpu can be stored but have no effect.
func (u usage) of(name corev1.ResourceName) resource.Quantity {
	switch name {
	case corev1.ResourcePods, "count/pods":
		return *resource.NewQuantity(1, resource.DecimalSI)
	case corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return u.limits[canonicalLimit(name)].DeepCopy()
	}
	if strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
		return resource.Quantity{}
	}
	return u.requests[canonical(name)].DeepCopy()
}

// canonical returns the resource of a quota's key: cpu and requests.cpu are the same.
func canonical(name corev1.ResourceName) corev1.ResourceName {
	return corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
}

func canonicalLimit(name corev1.ResourceName) corev1.ResourceName {
	return corev1.ResourceName(strings.TrimPrefix(string(name), "limits."))
}

func isGPU(name corev1.ResourceName) bool { return job.IsGPU(canonical(name)) }

// Unstated is a container that does not set a resource that a quota counts. Kubernetes
// refuses pods with such a container.
type Unstated struct {
	Quota     string
	Resource  corev1.ResourceName
	Container string
}

// UnstatedResources returns the containers of a pod that do not set a resource that the
// quotas count.
func UnstatedResources(pod *corev1.PodSpec, quotas []corev1.ResourceQuota) []Unstated {
	// Pod-level resources count instead of those of containers.
	if pod == nil || podresources.IsPodLevelResourcesSet(&corev1.Pod{Spec: *pod}) {
		return nil
	}
	var unstated []Unstated
	for i := range quotas {
		if !matches(&quotas[i], pod) {
			continue
		}
		for _, name := range job.ResourceNames(quotas[i].Spec.Hard) {
			for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
				if mustBeSet(name) && !sets(&container, name) {
					unstated = append(unstated, Unstated{Quota: quotas[i].Name, Resource: name, Container: container.Name})
				}
			}
		}
	}
	return unstated
}

// mustBeSet reports whether every container must set a resource that a quota counts.
// Kubernetes only requires these.
func mustBeSet(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		return true
	}
	return false
}

func sets(container *corev1.Container, name corev1.ResourceName) bool {
	list, key := container.Resources.Requests, canonical(name)
	if strings.HasPrefix(string(name), "limits.") {
		list, key = container.Resources.Limits, canonicalLimit(name)
	}
	_, found := list[key]
	return found
}

// Package quota foretells what a namespace's ResourceQuotas and LimitRanges
// will say to the pods of a job, before any pod exists. It is pure.
//
// The answer is advice: pods of other jobs may come in between, and Kubernetes
// itself decides when each pod is created.
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

// Demand is what a job asks of its namespace.
type Demand struct {
	Launcher, Workers Pods
	// Objects are the numbers of the other objects that a job is made of, by the
	// names that a ResourceQuota counts them under.
	Objects map[corev1.ResourceName]int64
	// MinWorkers is the least number of workers that a job may have.
	MinWorkers int64
}

// Pods are a number of pods that are alike.
type Pods struct {
	Count int64
	// Spec is the pod as Kubernetes will store it: requests filled in from
	// limits, and both from LimitRanges.
	Spec *corev1.PodSpec
}

// Shortage is a resource of which a quota has too little.
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

// Shortages are what the quotas have too little of, one for each resource: the
// quota with the least to give is named.
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

// compareFirst orders what is true before what is not.
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

// FittingWorkers is the largest number of workers, below that of the demand,
// that the quotas have room for; 0 if it would be below the least.
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

// weights are what a launcher and a worker count for. They are the same for every
// quota and every number of workers, and a pod can be large.
type weights struct{ launcher, worker usage }

func weigh(demand *Demand) weights {
	return weights{launcher: newUsage(demand.Launcher.Spec), worker: newUsage(demand.Workers.Spec)}
}

func (weights weights) shortages(demand *Demand, quota *corev1.ResourceQuota) []Shortage {
	workersCount, launcherCounts := matches(quota, demand.Workers.Spec), matches(quota, demand.Launcher.Spec)
	var shortages []Shortage
	for _, name := range job.ResourceNames(quota.Spec.Hard) {
		shortage := Shortage{Quota: quota.Name, Resource: name, Hard: quota.Spec.Hard[name], Used: quota.Status.Used[name].DeepCopy()}
		if workersCount && demand.Workers.Count > 0 {
			shortage.PerWorker = weights.worker.of(name)
			total := shortage.PerWorker.DeepCopy()
			total.Mul(demand.Workers.Count)
			shortage.Requested.Add(total)
		}
		if launcherCounts && demand.Launcher.Count > 0 {
			shortage.Launcher = weights.launcher.of(name)
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

// usage is what one pod counts for in a quota.
type usage struct{ requests, limits corev1.ResourceList }

func newUsage(pod *corev1.PodSpec) usage {
	if pod == nil {
		return usage{}
	}
	return usage{requests: job.Requests(pod), limits: job.Limits(pod)}
}

// of is what Kubernetes counts under a quota's key. Of extended resources it
// counts requests only, and only under requests.: keys such as nvidia.com/gpu
// and limits.nvidia.com/gpu can be stored but hold nobody.
func (usage usage) of(name corev1.ResourceName) resource.Quantity {
	switch name {
	case corev1.ResourcePods, "count/pods":
		return *resource.NewQuantity(1, resource.DecimalSI)
	case corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return usage.limits[canonicalLimit(name)].DeepCopy()
	}
	if strings.Contains(string(name), "/") && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) {
		return resource.Quantity{}
	}
	return usage.requests[canonical(name)].DeepCopy()
}

// canonical is the name of the resource that a quota's key counts: cpu and
// requests.cpu are the same.
func canonical(name corev1.ResourceName) corev1.ResourceName {
	return corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix))
}

func canonicalLimit(name corev1.ResourceName) corev1.ResourceName {
	return corev1.ResourceName(strings.TrimPrefix(string(name), "limits."))
}

func isGPU(name corev1.ResourceName) bool { return job.IsGPU(canonical(name)) }

// Unstated is a container that says nothing of a resource that a quota counts.
// Kubernetes refuses the pods of such a container.
type Unstated struct {
	Quota     string
	Resource  corev1.ResourceName
	Container string
}

// UnstatedResources finds the containers of a pod that do not say what the
// quotas count.
func UnstatedResources(pod *corev1.PodSpec, quotas []corev1.ResourceQuota) []Unstated {
	// Resources of the pod as a whole stand for its containers'.
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
				if demanded(name) && !states(&container, name) {
					unstated = append(unstated, Unstated{Quota: quotas[i].Name, Resource: name, Container: container.Name})
				}
			}
		}
	}
	return unstated
}

// demanded are the resources that every container must state once a quota
// counts them; Kubernetes is so strict with these only.
func demanded(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory:
		return true
	}
	return false
}

func states(container *corev1.Container, name corev1.ResourceName) bool {
	list, key := container.Resources.Requests, canonical(name)
	if strings.HasPrefix(string(name), "limits.") {
		list, key = container.Resources.Limits, canonicalLimit(name)
	}
	_, stated := list[key]
	return stated
}

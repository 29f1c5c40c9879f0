// SPDX-License-Identifier: Apache-2.0

package integration

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// resourceCases are about what a pod counts for.
var resourceCases = map[string]quotaCase{
	"an exact fit": {
		quotas: []quotaOption{hard("requests.cpu", "8", "requests.memory", "16Gi", "pods", "4").used("requests.cpu", "4", "requests.memory", "8Gi", "pods", "2")},
		worker: podOf(container("main", requests("cpu", "2", "memory", "4Gi"))), workers: 2,
	},
	"one CPU too many": {
		quotas: []quotaOption{hard("requests.cpu", "8").used("requests.cpu", "5")},
		worker: podOf(container("main", requests("cpu", "2"))), workers: 2, wantRefused: true,
	},
	"memory by its old name": {
		quotas: []quotaOption{hard("memory", "8Gi")},
		worker: podOf(container("main", requests("memory", "3Gi"))), workers: 3, wantRefused: true,
	},
	"pods": {
		quotas: []quotaOption{hard("pods", "3").used("pods", "1")},
		worker: podOf(container("main")), workers: 3, wantRefused: true,
	},
	"pods by their new name": {
		quotas: []quotaOption{hard("count/pods", "2")},
		worker: podOf(container("main")), workers: 3, wantRefused: true,
	},
	"GPUs, launcher included": {
		quotas:   []quotaOption{hard("requests.nvidia.com/gpu", "32").used("requests.nvidia.com/gpu", "24")},
		launcher: podOf(container("main", limits("nvidia.com/gpu", "1"))),
		worker:   podOf(container("main", limits("nvidia.com/gpu", "2"))), workers: 4, wantRefused: true,
	},
	"GPUs, a launcher without": {
		quotas:   []quotaOption{hard("requests.nvidia.com/gpu", "32").used("requests.nvidia.com/gpu", "24")},
		launcher: podOf(container("main")),
		worker:   podOf(container("main", limits("nvidia.com/gpu", "2"))), workers: 4,
	},
	"GPUs of another vendor are not counted": {
		quotas: []quotaOption{hard("requests.nvidia.com/gpu", "1")},
		worker: podOf(container("main", limits("amd.com/gpu", "2"))), workers: 1,
	},
	"a quota of GPUs without requests. holds nobody": {
		quotas: []quotaOption{hard("nvidia.com/gpu", "1")},
		worker: podOf(container("main", limits("nvidia.com/gpu", "2"))), workers: 1,
	},
	"a quota of limits of GPUs holds nobody": {
		quotas: []quotaOption{hard("limits.nvidia.com/gpu", "1")},
		worker: podOf(container("main", limits("nvidia.com/gpu", "2"))), workers: 1,
	},
	"huge pages by either name": {
		quotas: []quotaOption{hard("hugepages-2Mi", "6Mi"), hard("requests.hugepages-2Mi", "10Mi")},
		worker: podOf(container("main", limits("cpu", "1", "memory", "1Gi", "hugepages-2Mi", "4Mi"))), workers: 2, wantRefused: true,
	},
	"ephemeral storage": {
		quotas: []quotaOption{hard("requests.ephemeral-storage", "3Gi", "limits.ephemeral-storage", "7Gi")},
		worker: podOf(container("main", requests("ephemeral-storage", "1Gi"), limits("ephemeral-storage", "4Gi"))), workers: 2, wantRefused: true,
	},
	"ephemeral storage need not be stated": {
		quotas: []quotaOption{hard("requests.ephemeral-storage", "1Gi")},
		worker: podOf(container("main")), workers: 1,
	},
	"limits are counted apart from requests": {
		quotas: []quotaOption{hard("requests.cpu", "4", "limits.cpu", "7")},
		worker: podOf(container("main", requests("cpu", "1"), limits("cpu", "4"))), workers: 2, wantRefused: true,
	},
	"a limit is also the request": {
		quotas: []quotaOption{hard("requests.cpu", "7")},
		worker: podOf(container("main", limits("cpu", "4"))), workers: 2, wantRefused: true,
	},
	"a limit that no container states": {
		quotas: []quotaOption{hard("limits.cpu", "100")},
		worker: podOf(container("main", requests("cpu", "1"))), workers: 1, wantRefused: true,
	},
	"a request that one of two containers states": {
		quotas: []quotaOption{hard("memory", "100Gi")},
		worker: podOf(container("main", requests("memory", "1Gi")), container("logs")), workers: 1, wantRefused: true,
	},
	"a request that the init container does not state": {
		quotas: []quotaOption{hard("requests.memory", "100Gi")},
		worker: podOf(container("main", requests("memory", "1Gi")), initContainer("init")), workers: 1, wantRefused: true,
	},
	"a request of nothing is stated": {
		quotas: []quotaOption{hard("requests.cpu", "1").used("requests.cpu", "1")},
		worker: podOf(container("main", requests("cpu", "0"))), workers: 1,
	},
	"a quota that is over-used in what the pod does not ask for": {
		quotas: []quotaOption{hard("requests.nvidia.com/gpu", "2", "pods", "5").used("requests.nvidia.com/gpu", "4")},
		worker: podOf(container("main")), workers: 2,
	},
	"a quota that is over-used": {
		quotas: []quotaOption{hard("requests.nvidia.com/gpu", "2").used("requests.nvidia.com/gpu", "4")},
		worker: podOf(container("main", limits("nvidia.com/gpu", "1"))), workers: 1, wantRefused: true,
	},
	"the tighter of two quotas": {
		quotas: []quotaOption{hard("requests.cpu", "100"), hard("cpu", "3")},
		worker: podOf(container("main", requests("cpu", "1"))), workers: 4, wantRefused: true,
	},
	"more than fits into 64 bits": {
		quotas: []quotaOption{hard("requests.cpu", "1e30").used("requests.cpu", "1")},
		worker: podOf(container("main", requests("cpu", "9e18"))), workers: 3,
	},
	"thousandths of a CPU": {
		quotas: []quotaOption{hard("requests.cpu", "1").used("requests.cpu", "1m")},
		worker: podOf(container("main", requests("cpu", "333m"))), workers: 3,
	},
}

// podCases are about pods of more than one container.
var podCases = map[string]quotaCase{
	"an init container that is smaller than the pod": {
		quotas: []quotaOption{hard("requests.cpu", "6")},
		worker: podOf(container("main", requests("cpu", "2")), container("logs", requests("cpu", "1")), initContainer("init", requests("cpu", "3"))), workers: 2,
	},
	"an init container that is larger than the pod": {
		quotas: []quotaOption{hard("requests.cpu", "7")},
		worker: podOf(container("main", requests("cpu", "2")), initContainer("init", requests("cpu", "4"))), workers: 2, wantRefused: true,
	},
	"a sidecar counts beside the containers": {
		quotas: []quotaOption{hard("requests.cpu", "5")},
		worker: podOf(container("main", requests("cpu", "2")), sidecar("proxy", requests("cpu", "1"))), workers: 2, wantRefused: true,
	},
	"an init container after a sidecar": {
		quotas: []quotaOption{hard("requests.cpu", "8")},
		worker: podOf(container("main", requests("cpu", "2")), sidecar("proxy", requests("cpu", "1")), initContainer("init", requests("cpu", "4"))),
		// 1 + 4 while the init container runs.
		workers: 2, wantRefused: true,
	},
	"an init container before a sidecar": {
		quotas: []quotaOption{hard("requests.cpu", "8")},
		worker: podOf(container("main", requests("cpu", "2")), initContainer("init", requests("cpu", "4")), sidecar("proxy", requests("cpu", "1"))), workers: 2,
	},
	"limits of an init container": {
		quotas: []quotaOption{hard("limits.memory", "7Gi")},
		worker: podOf(container("main", limits("memory", "2Gi")), initContainer("init", limits("memory", "4Gi"))), workers: 2, wantRefused: true,
	},
	"resources of the pod as a whole": {
		quotas: []quotaOption{hard("requests.cpu", "7", "requests.memory", "1Gi")},
		worker: podOf(container("main"), whole(requests("cpu", "4"))), workers: 2, wantRefused: true,
	},
	"limits of the pod as a whole are its requests": {
		quotas: []quotaOption{hard("requests.cpu", "7")},
		worker: podOf(container("main"), whole(limits("cpu", "4"))), workers: 2, wantRefused: true,
	},
	"limits of the pod as a whole give way to the requests of containers": {
		quotas: []quotaOption{hard("requests.cpu", "7")},
		worker: podOf(container("main", requests("cpu", "3")), whole(limits("cpu", "4"))), workers: 2,
	},
	"resources of the pod as a whole that say nothing": {
		quotas: []quotaOption{hard("requests.cpu", "7")},
		worker: podOf(container("main"), whole()), workers: 1, wantRefused: true,
	},
}

// scopeCases are about pods that a quota does not count. Every quota here is
// full already: a pod is accepted if, and only if, it is out of scope.
var scopeCases = map[string]quotaCase{
	"BestEffort, a pod that states nothing":            {quotas: full().in(bestEffort), worker: podOf(container("main")), workers: 1, wantRefused: true},
	"BestEffort, a pod of GPUs":                        {quotas: full().in(bestEffort), worker: podOf(container("main", limits("nvidia.com/gpu", "1"))), workers: 1, wantRefused: true},
	"BestEffort, a pod of no CPU":                      {quotas: full().in(bestEffort), worker: podOf(container("main", requests("cpu", "0"))), workers: 1, wantRefused: true},
	"BestEffort, a pod with memory":                    {quotas: full().in(bestEffort), worker: podOf(container("main", requests("memory", "1"))), workers: 1},
	"BestEffort, an init container with memory":        {quotas: full().in(bestEffort), worker: podOf(container("main"), initContainer("init", requests("memory", "1"))), workers: 1},
	"BestEffort, a pod with resources as a whole":      {quotas: full().in(bestEffort), worker: podOf(container("main"), whole(requests("cpu", "1"))), workers: 1},
	"NotBestEffort, a pod that states nothing":         {quotas: full().in(notBestEffort), worker: podOf(container("main")), workers: 1},
	"NotBestEffort, a pod with a limit of CPU":         {quotas: full().in(notBestEffort), worker: podOf(container("main", limits("cpu", "1"))), workers: 1, wantRefused: true},
	"Terminating, a pod with a deadline":               {quotas: full().in(terminating), worker: podOf(container("main"), deadline(60)), workers: 1, wantRefused: true},
	"Terminating, a pod without":                       {quotas: full().in(terminating), worker: podOf(container("main")), workers: 1},
	"NotTerminating, a pod with a deadline":            {quotas: full().in(notTerminating), worker: podOf(container("main"), deadline(60)), workers: 1},
	"NotTerminating, a pod without":                    {quotas: full().in(notTerminating), worker: podOf(container("main")), workers: 1, wantRefused: true},
	"PriorityClass, a pod with one":                    {quotas: full().in(priorityClass), worker: podOf(container("main"), priority("low")), workers: 1, wantRefused: true},
	"PriorityClass, a pod without":                     {quotas: full().in(priorityClass), worker: podOf(container("main")), workers: 1},
	"PriorityClass In, the class":                      {quotas: full().ofClass("In", "high"), worker: podOf(container("main"), priority("high")), workers: 1, wantRefused: true},
	"PriorityClass In, another class":                  {quotas: full().ofClass("In", "high"), worker: podOf(container("main"), priority("low")), workers: 1},
	"PriorityClass In, a pod without":                  {quotas: full().ofClass("In", "high"), worker: podOf(container("main")), workers: 1},
	"PriorityClass NotIn, the class":                   {quotas: full().ofClass("NotIn", "high"), worker: podOf(container("main"), priority("high")), workers: 1},
	"PriorityClass NotIn, another class":               {quotas: full().ofClass("NotIn", "high"), worker: podOf(container("main"), priority("low")), workers: 1, wantRefused: true},
	"PriorityClass NotIn, a pod without":               {quotas: full().ofClass("NotIn", "high"), worker: podOf(container("main")), workers: 1, wantRefused: true},
	"PriorityClass Exists, a pod with one":             {quotas: full().ofClass("Exists"), worker: podOf(container("main"), priority("low")), workers: 1, wantRefused: true},
	"PriorityClass DoesNotExist, a pod with one":       {quotas: full().ofClass("DoesNotExist"), worker: podOf(container("main"), priority("low")), workers: 1},
	"PriorityClass DoesNotExist, a pod without":        {quotas: full().ofClass("DoesNotExist"), worker: podOf(container("main")), workers: 1, wantRefused: true},
	"a launcher and workers of different classes":      {quotas: full().ofClass("In", "high"), launcher: podOf(container("main"), priority("high")), worker: podOf(container("main")), workers: 1, wantRefused: true},
	"two scopes, a pod in both":                        {quotas: full().in(notTerminating, notBestEffort), worker: podOf(container("main", requests("cpu", "1"))), workers: 1, wantRefused: true},
	"two scopes, a pod in one":                         {quotas: full().in(notTerminating, notBestEffort), worker: podOf(container("main")), workers: 1},
	"a selector that selects nothing":                  {quotas: full().selecting(), worker: podOf(container("main")), workers: 1, wantRefused: true},
	"what a pod out of scope need not state":           {quotas: []quotaOption{hard("requests.cpu", "9").scopes(terminating)}, worker: podOf(container("main")), workers: 1},
	"CrossNamespacePodAffinity, a namespace":           {quotas: full().in(crossNamespace), worker: podOf(container("main"), near(corev1.PodAffinityTerm{Namespaces: []string{"other"}})), workers: 1, wantRefused: true},
	"CrossNamespacePodAffinity, the own namespace":     {quotas: full().in(crossNamespace), worker: podOf(container("main"), near(corev1.PodAffinityTerm{})), workers: 1},
	"CrossNamespacePodAffinity, away from a namespace": {quotas: full().in(crossNamespace), worker: podOf(container("main"), farFromAll()), workers: 1, wantRefused: true},
}

// limitRangeCases are about what a LimitRange fills in and refuses.
var limitRangeCases = map[string]quotaCase{
	"defaults count in a quota": {
		quotas: []quotaOption{hard("requests.cpu", "3", "limits.cpu", "100")},
		limits: perContainer(corev1.LimitRangeItem{Default: list("cpu", "4"), DefaultRequest: list("cpu", "2")}),
		worker: podOf(container("main")), workers: 2, wantRefused: true,
	},
	"defaults state what a quota asks for": {
		quotas: []quotaOption{hard("requests.cpu", "4", "limits.cpu", "8")},
		limits: perContainer(corev1.LimitRangeItem{Default: list("cpu", "4"), DefaultRequest: list("cpu", "2")}),
		worker: podOf(container("main")), workers: 2,
	},
	"a default limit is the default request": {
		quotas: []quotaOption{hard("requests.cpu", "7")},
		limits: perContainer(corev1.LimitRangeItem{Default: list("cpu", "4")}),
		worker: podOf(container("main")), workers: 2, wantRefused: true,
	},
	"a limit of the pod's is the request before a default is": {
		quotas: []quotaOption{hard("requests.cpu", "5")},
		limits: perContainer(corev1.LimitRangeItem{DefaultRequest: list("cpu", "1"), Default: list("cpu", "8")}),
		worker: podOf(container("main", limits("cpu", "3"))), workers: 2, wantRefused: true,
	},
	"defaults make a pod leave BestEffort": {
		quotas: full().in(bestEffort),
		limits: perContainer(corev1.LimitRangeItem{Default: list("memory", "1Gi")}),
		worker: podOf(container("main")), workers: 1,
	},
	"a most is the default limit": {
		quotas: []quotaOption{hard("requests.nvidia.com/gpu", "16")},
		limits: perContainer(corev1.LimitRangeItem{Max: list("nvidia.com/gpu", "16")}),
		worker: podOf(container("main")), workers: 2, wantRefused: true,
	},
	"a limit above the most": {
		limits: perContainer(corev1.LimitRangeItem{Max: list("cpu", "2")}),
		worker: podOf(container("main", limits("cpu", "3"))), workers: 1, wantRefused: true,
	},
	"a limit at the most": {
		limits: perContainer(corev1.LimitRangeItem{Max: list("cpu", "2")}),
		worker: podOf(container("main", limits("cpu", "2"))), workers: 1,
	},
	"a request below the least": {
		limits: perContainer(corev1.LimitRangeItem{Min: list("memory", "1Gi")}),
		worker: podOf(container("main", requests("memory", "1Mi"))), workers: 1, wantRefused: true,
	},
	"a request that is missing gets the least": {
		limits: perContainer(corev1.LimitRangeItem{Min: list("memory", "1Gi")}),
		worker: podOf(container("main")), workers: 1,
	},
	"an init container out of range": {
		limits: perContainer(corev1.LimitRangeItem{Max: list("cpu", "2")}),
		worker: podOf(container("main", limits("cpu", "1")), initContainer("init", limits("cpu", "3"))), workers: 1, wantRefused: true,
	},
	"containers within, the pod above the most": {
		limits: perPod(corev1.LimitRangeItem{Max: list("cpu", "3")}),
		worker: podOf(container("main", limits("cpu", "2")), container("logs", limits("cpu", "2"))), workers: 1, wantRefused: true,
	},
	"a pod at the most": {
		limits: perPod(corev1.LimitRangeItem{Max: list("cpu", "4")}),
		worker: podOf(container("main", limits("cpu", "2")), container("logs", limits("cpu", "2"))), workers: 1,
	},
	"a pod without the limit that has a most": {
		limits: perPod(corev1.LimitRangeItem{Max: list("cpu", "4")}),
		worker: podOf(container("main", requests("cpu", "2"))), workers: 1, wantRefused: true,
	},
	"a pod below the least": {
		limits: perPod(corev1.LimitRangeItem{Min: list("cpu", "4")}),
		worker: podOf(container("main", requests("cpu", "2"))), workers: 1, wantRefused: true,
	},
	"a pod whose stated limits are below the least": {
		limits: perPod(corev1.LimitRangeItem{Min: list("cpu", "4")}),
		worker: podOf(container("main", limits("cpu", "1")), container("logs", requests("cpu", "5"))), workers: 1, wantRefused: true,
	},
	"a limit that is too far above the request": {
		limits: perContainer(corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu", "1500m")}),
		worker: podOf(container("main", requests("cpu", "2"), limits("cpu", "3001m"))), workers: 1, wantRefused: true,
	},
	"a limit as far above the request as is allowed": {
		limits: perContainer(corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu", "1500m")}),
		worker: podOf(container("main", requests("cpu", "2"), limits("cpu", "3"))), workers: 1,
	},
	"a ratio of what the pod does not state": {
		limits: perPod(corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu", "2")}),
		worker: podOf(container("main")), workers: 1, wantRefused: true,
	},
	"a ratio to a request of nothing": {
		limits: perContainer(corev1.LimitRangeItem{MaxLimitRequestRatio: list("cpu", "2")}),
		worker: podOf(container("main", requests("cpu", "0"), limits("cpu", "1"))), workers: 1, wantRefused: true,
	},
	"claims are not pods": {
		limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypePersistentVolumeClaim, Min: list("storage", "1Gi")}},
		worker: podOf(container("main")), workers: 1,
	},
}

const (
	bestEffort     = corev1.ResourceQuotaScopeBestEffort
	notBestEffort  = corev1.ResourceQuotaScopeNotBestEffort
	terminating    = corev1.ResourceQuotaScopeTerminating
	notTerminating = corev1.ResourceQuotaScopeNotTerminating
	priorityClass  = corev1.ResourceQuotaScopePriorityClass
	crossNamespace = corev1.ResourceQuotaScopeCrossNamespacePodAffinity
)

// fullQuota has no room for a pod.
type fullQuota quotaOption

func full() fullQuota { return fullQuota(hard("pods", "1").used("pods", "1")) }

func (full fullQuota) in(scopes ...corev1.ResourceQuotaScope) []quotaOption {
	return []quotaOption{quotaOption(full).scopes(scopes...)}
}

func (full fullQuota) ofClass(operator corev1.ScopeSelectorOperator, classes ...string) []quotaOption {
	return []quotaOption{quotaOption(full).ofClass(operator, classes...)}
}

func (full fullQuota) selecting(requirements ...corev1.ScopedResourceSelectorRequirement) []quotaOption {
	return []quotaOption{quotaOption(full).selector(requirements...)}
}

func perContainer(item corev1.LimitRangeItem) []corev1.LimitRangeItem {
	item.Type = corev1.LimitTypeContainer
	return []corev1.LimitRangeItem{item}
}

func perPod(item corev1.LimitRangeItem) []corev1.LimitRangeItem {
	item.Type = corev1.LimitTypePod
	return []corev1.LimitRangeItem{item}
}

type podOption func(*corev1.PodSpec)

func podOf(options ...podOption) *corev1.PodSpec {
	pod := &corev1.PodSpec{}
	for _, option := range options {
		option(pod)
	}
	if len(pod.Containers) == 0 {
		container("main")(pod)
	}
	return pod
}

type resourceOption func(*corev1.ResourceRequirements)

func requests(amounts ...string) resourceOption {
	return func(resources *corev1.ResourceRequirements) { resources.Requests = list(amounts...) }
}

func limits(amounts ...string) resourceOption {
	return func(resources *corev1.ResourceRequirements) { resources.Limits = list(amounts...) }
}

func newContainer(name string, options []resourceOption) corev1.Container {
	container := corev1.Container{Name: name, Image: "training:1"}
	for _, option := range options {
		option(&container.Resources)
	}
	return container
}

func container(name string, options ...resourceOption) podOption {
	return func(pod *corev1.PodSpec) { pod.Containers = append(pod.Containers, newContainer(name, options)) }
}

func initContainer(name string, options ...resourceOption) podOption {
	return func(pod *corev1.PodSpec) {
		pod.InitContainers = append(pod.InitContainers, newContainer(name, options))
	}
}

func sidecar(name string, options ...resourceOption) podOption {
	return func(pod *corev1.PodSpec) {
		container := newContainer(name, options)
		container.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		pod.InitContainers = append(pod.InitContainers, container)
	}
}

// whole sets the resources that the containers of a pod share.
func whole(options ...resourceOption) podOption {
	return func(pod *corev1.PodSpec) {
		pod.Resources = &corev1.ResourceRequirements{}
		for _, option := range options {
			option(pod.Resources)
		}
	}
}

func priority(class string) podOption {
	return func(pod *corev1.PodSpec) { pod.PriorityClassName = class }
}

func deadline(seconds int64) podOption {
	return func(pod *corev1.PodSpec) { pod.ActiveDeadlineSeconds = &seconds }
}

func near(term corev1.PodAffinityTerm) podOption {
	term.TopologyKey, term.LabelSelector = corev1.LabelHostname, &metav1.LabelSelector{}
	return func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term},
		}}
	}
}

// farFromAll pods would rather not share a node with pods of any namespace.
func farFromAll() podOption {
	return func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 1,
				PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{},
				},
			}},
		}}
	}
}

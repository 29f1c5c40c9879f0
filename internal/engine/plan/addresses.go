// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// endpointSliceManager keeps Kubernetes' own controllers from changing these
	// EndpointSlices.
	endpointSliceManager = "trireme"
	// endpointsPerSlice is the API's limit.
	endpointsPerSlice = 1000
)

// Addresses are the EndpointSlices of the job's Service, from which the cluster's DNS
// resolves the host names. Kubernetes would write them for a Service with a selector,
// but again for every pod that starts: n writes of n addresses for n workers, where one
// write is enough. complete reports whether they contain all workers, and the address
// of every pod.
func Addresses(j *job.Job, state State) (addresses []*discoveryv1.EndpointSlice, complete bool) {
	pods := currentPods(state)
	complete = len(state.Workers) >= int(j.Worker.Replicas)
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		var endpoints []discoveryv1.Endpoint
		for _, pod := range pods {
			if address := addressOf(pod, family); address != "" {
				endpoints = append(endpoints, endpoint(pod, address))
			}
		}
		for index := 0; len(endpoints) > 0; index++ {
			count := min(len(endpoints), endpointsPerSlice)
			addresses = append(addresses, endpointSlice(j, family, index, endpoints[:count]))
			endpoints = endpoints[count:]
		}
	}
	for _, pod := range pods {
		complete = complete && len(pod.Status.PodIPs) > 0
	}
	return addresses, complete
}

// HasStale reports whether existing EndpointSlices contain a pod that was deleted. Its
// address may belong to another pod by now.
func HasStale(existing, wanted []*discoveryv1.EndpointSlice) bool {
	wantedPods := map[types.UID]bool{}
	for _, slice := range wanted {
		for i := range slice.Endpoints {
			wantedPods[slice.Endpoints[i].TargetRef.UID] = true
		}
	}
	for _, slice := range existing {
		for i := range slice.Endpoints {
			if target := slice.Endpoints[i].TargetRef; target == nil || !wantedPods[target.UID] {
				return true
			}
		}
	}
	return false
}

// currentPods are the pods of the current start, sorted by name.
func currentPods(state State) []*corev1.Pod {
	launchers := slices.DeleteFunc(slices.Clone(state.Launchers), func(pod *corev1.Pod) bool { return RestartOf(pod) != state.Restart })
	pods := slices.Concat(launchers, state.Workers)
	slices.SortFunc(pods, func(one, other *corev1.Pod) int { return strings.Compare(one.Name, other.Name) })
	return pods
}

func addressOf(pod *corev1.Pod, family discoveryv1.AddressType) string {
	for _, podIP := range pod.Status.PodIPs {
		address, err := netip.ParseAddr(podIP.IP)
		if err == nil && address.Is4() == (family == discoveryv1.AddressTypeIPv4) {
			return podIP.IP
		}
	}
	return ""
}

// endpoint is ready before its pod is, because the gate resolves host names while it
// waits for the pods.
func endpoint(pod *corev1.Pod, address string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{
		Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}, Hostname: new(pod.Spec.Hostname),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
	}
}

func endpointSlice(j *job.Job, family discoveryv1.AddressType, index int, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	name := NamesOf(j).Service
	if family == discoveryv1.AddressTypeIPv6 {
		name += "-ipv6"
	}
	if index > 0 {
		name = fmt.Sprintf("%s-%d", name, index)
	}
	meta := objectMeta(j, name)
	meta.Labels[discoveryv1.LabelServiceName] = NamesOf(j).Service
	meta.Labels[discoveryv1.LabelManagedBy] = endpointSliceManager
	meta.OwnerReferences = []metav1.OwnerReference{OwnerOf(j)}
	return &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: family, Endpoints: endpoints}
}

// addressKeys identify the job's existing EndpointSlices for deletion: their addresses
// may soon belong to other pods.
func addressKeys(j *job.Job, state State) (keys []gang.Object) {
	for _, existing := range state.Addresses {
		reference := &discoveryv1.EndpointSlice{ObjectMeta: keyMeta(j, existing.Name)}
		reference.UID = existing.UID
		keys = append(keys, reference)
	}
	return keys
}

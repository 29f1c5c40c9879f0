// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// at gives pods addresses: "" is none yet, and a dual-stack pod has two with a comma.
func at(pods []*corev1.Pod, addresses ...[]string) []*corev1.Pod {
	for i, pod := range pods {
		pod.Spec.Hostname = "host-of-" + pod.Name
		for _, address := range addresses[i] {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: address})
		}
	}
	return pods
}

// known are the EndpointSlices as text: name, family, and for each endpoint host and
// address.
func known(slices []*discoveryv1.EndpointSlice) map[string][]string {
	found := map[string][]string{}
	for _, slice := range slices {
		name := fmt.Sprintf("%s %s", slice.Name, slice.AddressType)
		found[name] = []string{}
		for i := range slice.Endpoints {
			endpoint := &slice.Endpoints[i]
			found[name] = append(found[name], fmt.Sprintf("%s %s of %s", *endpoint.Hostname, endpoint.Addresses[0], endpoint.TargetRef.UID))
		}
	}
	return found
}

func TestAddresses(t *testing.T) {
	running := corev1.PodRunning
	launcher := func(restart int32, address ...string) []*corev1.Pod {
		return at(existing(mpiJob(), training.RoleLauncher, restart, running), address)
	}
	workers := func(addresses ...[]string) []*corev1.Pod {
		return at(existing(mpiJob(), training.RoleWorker, 0, running, running, running), addresses...)
	}
	none, ip := []string{}, func(addresses ...string) []string { return addresses }
	for name, tc := range map[string]struct {
		state    State
		want     map[string][]string
		complete bool
	}{
		"no pods":        {State{}, map[string][]string{}, false},
		"no address yet": {State{Launchers: launcher(0), Workers: workers(none, none, none)}, map[string][]string{}, false},
		"one worker has none": {
			State{Launchers: launcher(0, "10.0.0.9"), Workers: workers(ip("10.0.0.1"), none, ip("10.0.0.3"))},
			map[string][]string{"resnet-worker IPv4": {
				"host-of-resnet-launcher-r0 10.0.0.9 of uid-of-resnet-launcher-r0",
				"host-of-resnet-worker-0 10.0.0.1 of uid-of-resnet-worker-0",
				"host-of-resnet-worker-2 10.0.0.3 of uid-of-resnet-worker-2",
			}}, false,
		},
		"the launcher has none": {
			State{Launchers: launcher(0), Workers: workers(ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.3"))},
			map[string][]string{"resnet-worker IPv4": {
				"host-of-resnet-worker-0 10.0.0.1 of uid-of-resnet-worker-0",
				"host-of-resnet-worker-1 10.0.0.2 of uid-of-resnet-worker-1",
				"host-of-resnet-worker-2 10.0.0.3 of uid-of-resnet-worker-2",
			}}, false,
		},
		"both families, and a launcher of an earlier start": {
			State{
				Restart: 1, Launchers: append(launcher(0, "10.0.0.8"), launcher(1, "10.0.0.9", "fd00::9")...),
				Workers: workers(ip("10.0.0.1", "fd00::1"), ip("10.0.0.2", "fd00::2"), ip("10.0.0.3", "fd00::3")),
			},
			map[string][]string{
				"resnet-worker IPv4": {
					"host-of-resnet-launcher-r1 10.0.0.9 of uid-of-resnet-launcher-r1",
					"host-of-resnet-worker-0 10.0.0.1 of uid-of-resnet-worker-0",
					"host-of-resnet-worker-1 10.0.0.2 of uid-of-resnet-worker-1",
					"host-of-resnet-worker-2 10.0.0.3 of uid-of-resnet-worker-2",
				},
				"resnet-worker-ipv6 IPv6": {
					"host-of-resnet-launcher-r1 fd00::9 of uid-of-resnet-launcher-r1",
					"host-of-resnet-worker-0 fd00::1 of uid-of-resnet-worker-0",
					"host-of-resnet-worker-1 fd00::2 of uid-of-resnet-worker-1",
					"host-of-resnet-worker-2 fd00::3 of uid-of-resnet-worker-2",
				},
			}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			slices, complete := Addresses(mpiJob(), tc.state)
			if diff := cmp.Diff(tc.want, known(slices)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if complete != tc.complete {
				t.Errorf("complete: %t, want %t", complete, tc.complete)
			}
			for _, slice := range slices {
				if slice.Labels[discoveryv1.LabelServiceName] != "resnet-worker" || slice.Labels[discoveryv1.LabelManagedBy] != "trireme" || len(slice.OwnerReferences) != 1 {
					t.Errorf("wrong labels or owner: %+v", slice.ObjectMeta)
				}
			}
		})
	}
}

// An EndpointSlice has at most 1,000 endpoints.
func TestAddressesOfManyWorkers(t *testing.T) {
	j := mpiJob(replicas(2500))
	pods := existing(j, training.RoleWorker, 0, make([]corev1.PodPhase, 2500)...)
	for i, pod := range pods {
		at([]*corev1.Pod{pod}, []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250)})
	}
	slices, complete := Addresses(j, State{Workers: pods})
	if !complete || len(slices) != 3 || len(slices[2].Endpoints) != 500 || slices[2].Name != "resnet-worker-2" {
		t.Errorf("%d EndpointSlices, complete: %t", len(slices), complete)
	}
}

// An EndpointSlice with a deleted pod is updated at once, before all new pods have
// addresses.
func TestStaleAddresses(t *testing.T) {
	pods := at(existing(mpiJob(), training.RoleWorker, 0, corev1.PodRunning, corev1.PodRunning), []string{"10.0.0.1"}, []string{"10.0.0.2"})
	both, _ := Addresses(mpiJob(), State{Workers: pods})
	one, _ := Addresses(mpiJob(), State{Workers: pods[:1]})
	if !HasStale(both, one) || HasStale(one, both) || HasStale(nil, both) {
		t.Error("wrong result for EndpointSlices with a deleted pod")
	}
}

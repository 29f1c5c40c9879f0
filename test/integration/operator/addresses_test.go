// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slice is the EndpointSlice by which DNS finds a job's hosts.
func (place *place) slice() *discoveryv1.EndpointSlice {
	place.Helper()
	var list discoveryv1.EndpointSliceList
	if err := place.client.List(context.Background(), &list, client.InNamespace(place.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: "train-worker"}); err != nil {
		place.Fatal(err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// untilFound waits until DNS finds exactly these pods.
func (place *place) untilFound(pods ...*corev1.Pod) {
	place.Helper()
	place.Eventually("the hosts are found", func() error {
		slice := place.slice()
		if slice == nil || len(slice.Endpoints) != len(pods) {
			return fmt.Errorf("want %d hosts, there is %+v", len(pods), slice)
		}
		for _, pod := range pods {
			place.MustGet(pod, pod.Name)
			if !finds(slice, pod) {
				return fmt.Errorf("%s at %s is not found by %+v", pod.Spec.Hostname, pod.Status.PodIP, slice.Endpoints)
			}
		}
		return nil
	})
}

func finds(slice *discoveryv1.EndpointSlice, pod *corev1.Pod) bool {
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		if *endpoint.Hostname == pod.Spec.Hostname && endpoint.Addresses[0] == pod.Status.PodIP && *endpoint.Conditions.Ready {
			return true
		}
	}
	return false
}

// The addresses of all hosts are written together, and go with the end of the job.
func TestAddresses(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		place.Create(job)
		launcher, workers := place.UntilPods(job)
		place.Assign(append(workers, launcher)...)
		began := time.Now()
		place.StartContainers(append(workers, launcher)...)
		// The first address waits two seconds for the others.
		areTogether := time.Since(began) < time.Second
		place.untilFound(append(workers, launcher)...)
		place.Ready(append(workers, launcher)...)
		if slice := place.slice(); areTogether && slice.Generation != 1 {
			t.Errorf("the addresses were written %d times", slice.Generation)
		}

		// Whoever deletes them gets them back.
		place.Delete(place.slice())
		place.untilFound(append(workers, launcher)...)

		place.Exit(launcher, 0, "")
		place.untilNoneFound()
	})
}

func (place *place) untilNoneFound() {
	place.Helper()
	place.Eventually("no host is found", func() error {
		if slice := place.slice(); slice != nil {
			return fmt.Errorf("there is %+v", slice.Endpoints)
		}
		return nil
	})
}

// An operator that was stopped may have left the addresses of an earlier start: they go
// before the pods of this one have any.
func TestAddressesOfAnEarlierStart(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		place.Create(job)
		_, workers := place.UntilPods(job)
		service := mustGet(place, &corev1.Service{}, "train-worker")
		labels := maps.Clone(service.Labels)
		labels[discoveryv1.LabelServiceName] = "train-worker"
		place.Create(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "train-worker", Labels: labels, OwnerReferences: service.OwnerReferences},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.9.9.9"}, Hostname: new(workers[0].Spec.Hostname)}},
		})
		place.untilNoneFound()
	})
}

// A host that does not come does not keep the others from being found.
func TestAddressesOfSomeHosts(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		place.Create(job)
		launcher, workers := place.UntilPods(job)
		place.Assign(append(workers, launcher)...)
		place.StartContainers(launcher, workers[0])
		place.untilFound(launcher, workers[0])
	})
}

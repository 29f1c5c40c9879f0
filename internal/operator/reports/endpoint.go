// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// announceRetry is the pause after an error, and announcePeriod the pause between checks
	// that nobody has changed the address.
	announceRetry  = 2 * time.Second
	announcePeriod = time.Minute
)

// Endpoint writes the address of the leading replica into the EndpointSlice of the Service
// for reports. The Service has no selector, so all reports reach one process.
type Endpoint struct {
	// Reader reads from the API server.
	Reader client.Reader
	Writer client.Writer

	Service client.ObjectKey
	Address netip.Addr
	Port    int32
}

// Announce keeps the EndpointSlice up to date until the context is done.
func (e *Endpoint) Announce(ctx context.Context) {
	for {
		pause := announcePeriod
		if err := e.write(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.Error(err, "Announce the port for reports", "service", e.Service.String())
			pause = announceRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (e *Endpoint) write(ctx context.Context) error {
	var service corev1.Service
	if err := e.Reader.Get(ctx, e.Service, &service); err != nil {
		return fmt.Errorf("read Service %s: %w", e.Service, err)
	}
	wanted := e.slice(&service)
	existing := &discoveryv1.EndpointSlice{}
	err := e.Reader.Get(ctx, client.ObjectKeyFromObject(wanted), existing)
	switch {
	case apierrors.IsNotFound(err):
		return e.Writer.Create(ctx, wanted)
	case err != nil:
		return fmt.Errorf("read EndpointSlice %s: %w", client.ObjectKeyFromObject(wanted), err)
	case existing.AddressType != wanted.AddressType:
		// It cannot be changed. The next call creates it.
		if err := e.Writer.Delete(ctx, existing); err != nil {
			return fmt.Errorf("delete EndpointSlice %s of another address type: %w", client.ObjectKeyFromObject(wanted), err)
		}
		return e.Writer.Create(ctx, wanted)
	case apiequality.Semantic.DeepEqual(existing.Endpoints, wanted.Endpoints) && apiequality.Semantic.DeepEqual(existing.Ports, wanted.Ports):
		return nil
	}
	existing.Endpoints, existing.Ports = wanted.Endpoints, wanted.Ports
	return e.Writer.Update(ctx, existing)
}

// slice is the EndpointSlice with the address of this replica. It is deleted with the
// Service.
func (e *Endpoint) slice(service *corev1.Service) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if e.Address.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.Service.Namespace, Name: e.Service.Name,
			Labels:          map[string]string{discoveryv1.LabelServiceName: e.Service.Name, discoveryv1.LabelManagedBy: "trireme"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{e.Address.String()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Protocol: new(corev1.ProtocolTCP), Port: &e.Port}},
	}
}

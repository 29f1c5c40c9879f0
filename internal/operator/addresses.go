// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// OpenShift requires endpointslices/restricted for EndpointSlices with pod addresses.
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices/restricted,verbs=create

// addressPatience is how long the addresses of some pods wait for the others, so that
// all are written at once.
const addressPatience = 2 * time.Second

type publication struct {
	// incomplete is when the first addresses of a job with missing ones were held back.
	incomplete time.Time
	written    []*discoveryv1.EndpointSlice
	at         time.Time
}

func (r *Reconciler) gatherAddresses(ctx context.Context, scope *scope) error {
	j := scope.job
	var list discoveryv1.EndpointSliceList
	if err := r.List(ctx, &list, client.InNamespace(j.Namespace), partsOf(j)); err != nil {
		return fmt.Errorf("list the EndpointSlices of %s %s/%s: %w", j.Kind, j.Namespace, j.Name, err)
	}
	for i := range list.Items {
		if slice := &list.Items[i]; isOwned(slice, j) && slice.DeletionTimestamp == nil {
			scope.addresses = append(scope.addresses, slice)
		}
	}
	return nil
}

// publish writes the addresses of a job's pods into EndpointSlices, and reports whether
// all of them are written.
func (r *Reconciler) publish(ctx context.Context, scope *scope, state plan.State, verdict *diagnosis.Verdict) (bool, *diagnosis.Refusal, error) {
	wanted, complete := plan.Addresses(scope.job, state)
	uid, now := scope.job.UID, r.Clock.Now()
	if areSame(scope.addresses, wanted) {
		r.memory.publications.forget(uid)
		return true, nil, nil
	}
	if wait := r.memory.publications.untilCached(uid, wanted, now); wait > 0 {
		checkWithin(verdict, wait)
		return true, nil, nil
	}
	if !complete && !plan.HasStale(scope.addresses, wanted) {
		if wait := r.memory.publications.holdBack(uid, now); wait > 0 {
			checkWithin(verdict, wait)
			return false, nil, nil
		}
	}
	for _, slice := range wanted {
		if refusal, err := r.store(ctx, scope, slice); refusal != nil || err != nil {
			return false, refusal, err
		}
	}
	if err := r.withdraw(ctx, scope, wanted); err != nil {
		return false, nil, err
	}
	r.memory.publications.add(uid, wanted, now)
	return true, nil, nil
}

func checkWithin(verdict *diagnosis.Verdict, wait time.Duration) {
	if verdict.NextCheck == 0 || verdict.NextCheck > wait {
		verdict.NextCheck = wait
	}
}

// withdraw deletes EndpointSlices of an earlier start, whose pods do not exist any more.
func (r *Reconciler) withdraw(ctx context.Context, scope *scope, wanted []*discoveryv1.EndpointSlice) error {
	for _, existing := range scope.addresses {
		if slices.ContainsFunc(wanted, func(slice *discoveryv1.EndpointSlice) bool { return slice.Name == existing.Name }) {
			continue
		}
		err := r.Delete(ctx, existing, client.Preconditions{UID: &existing.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete old addresses of %s %s/%s: %w", scope.job.Kind, existing.Namespace, scope.job.Name, err)
		}
	}
	return nil
}

// store creates or updates an EndpointSlice.
func (r *Reconciler) store(ctx context.Context, scope *scope, wanted *discoveryv1.EndpointSlice) (*diagnosis.Refusal, error) {
	for _, existing := range scope.addresses {
		if existing.Name != wanted.Name || existing.AddressType != wanted.AddressType {
			continue
		}
		if apiequality.Semantic.DeepEqual(existing.Endpoints, wanted.Endpoints) {
			return nil, nil
		}
		changed := existing.DeepCopy()
		changed.Endpoints = wanted.Endpoints
		if err := r.Update(ctx, changed); err != nil {
			return nil, fmt.Errorf("write the addresses of %s %s/%s: %w", scope.job.Kind, wanted.Namespace, scope.job.Name, err)
		}
		return nil, nil
	}
	return r.create(ctx, scope, wanted.DeepCopy())
}

// areSame reports whether the EndpointSlices have the wanted addresses and no others.
func areSame(existing, wanted []*discoveryv1.EndpointSlice) bool {
	if len(existing) != len(wanted) {
		return false
	}
	endpoints := map[string][]discoveryv1.Endpoint{}
	for _, slice := range existing {
		endpoints[slice.Name] = slice.Endpoints
	}
	for _, slice := range wanted {
		if !apiequality.Semantic.DeepEqual(endpoints[slice.Name], slice.Endpoints) {
			return false
		}
	}
	return true
}

// publications are the EndpointSlices that were last written for a job.
type publications struct{ perJob[publication] }

// untilCached is how long the cache may still take to show what was written; zero if
// something else was written.
func (p *publications) untilCached(uid types.UID, wanted []*discoveryv1.EndpointSlice, now time.Time) time.Duration {
	last, _ := p.get(uid)
	if last.at.IsZero() || !apiequality.Semantic.DeepEqual(last.written, wanted) {
		return 0
	}
	return cachePatience - now.Sub(last.at)
}

// holdBack is how long the addresses of some pods still wait for the others. The first
// call starts the wait.
func (p *publications) holdBack(uid types.UID, now time.Time) (wait time.Duration) {
	p.update(uid, func(last publication, _ bool) publication {
		if last.incomplete.IsZero() {
			last.incomplete = now
		}
		wait = addressPatience - now.Sub(last.incomplete)
		return last
	})
	return wait
}

func (p *publications) add(uid types.UID, written []*discoveryv1.EndpointSlice, now time.Time) {
	p.set(uid, publication{written: written, at: now})
}

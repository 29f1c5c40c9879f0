// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"context"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/trireme-mpi/trireme/internal/operator"
)

// informer is what a process knows of one kind: the state of the server at some
// moment, which comes nearer to the present with each event.
type informer struct {
	process *process
	kind    string
	chosen  cache.ByObject
	handler handler.EventHandler
	objects map[client.ObjectKey]client.Object
	// next is the change that is heard of next.
	next int
}

// newInformer knows what the operator's own choice lets it see. What it begins with is
// the present: client-go asks for no less (WatchListClient).
func newInformer(process *process, object client.Object, handler handler.EventHandler) *informer {
	informer := &informer{process: process, kind: kindOf(object), handler: handler, objects: map[client.ObjectKey]client.Object{}}
	for one, chosen := range operator.CachedKinds() {
		if kindOf(one) == informer.kind {
			informer.chosen = chosen
		}
	}
	informer.list(len(informer.changes()))
	return informer
}

func (informer *informer) changes() []change {
	return informer.process.simulation.server.of(informer.kind).changes
}

func (informer *informer) isBehind() bool { return informer.next < len(informer.changes()) }

// hear takes the next event of the watch.
func (informer *informer) hear() {
	made := informer.changes()[informer.next]
	informer.next++
	if made.after == nil {
		informer.set(client.ObjectKeyFromObject(made.before), nil)
		return
	}
	informer.set(client.ObjectKeyFromObject(made.after), made.after)
}

// list is what follows a watch that broke: what happened meanwhile is not told one
// by one, and an object that was made anew under its name is a changed one.
func (informer *informer) list(until int) {
	state := map[client.ObjectKey]client.Object{}
	for _, made := range informer.changes()[:until] {
		if made.after == nil {
			delete(state, client.ObjectKeyFromObject(made.before))
			continue
		}
		state[client.ObjectKeyFromObject(made.after)] = made.after
	}
	informer.next = until
	for _, object := range inOrder(state) {
		informer.set(client.ObjectKeyFromObject(object), object)
	}
	for _, object := range inOrder(informer.objects) {
		if key := client.ObjectKeyFromObject(object); state[key] == nil {
			informer.set(key, nil)
		}
	}
}

// set changes the cache, and tells the operator's own handlers.
func (informer *informer) set(key client.ObjectKey, object client.Object) {
	if object != nil && !matches(object, informer.chosen.Label, informer.chosen.Field) {
		object = nil
	}
	before := informer.objects[key]
	if object == nil {
		if before != nil {
			delete(informer.objects, key)
			informer.tell(before, nil)
		}
		return
	}
	if before != nil && before.GetResourceVersion() == object.GetResourceVersion() {
		return
	}
	object = object.DeepCopyObject().(client.Object)
	if transform := informer.chosen.Transform; transform != nil {
		changed, err := transform(object)
		if err != nil {
			panic(err)
		}
		object = changed.(client.Object)
	}
	informer.objects[key] = object
	informer.tell(before, object)
}

func (informer *informer) tell(before, after client.Object) {
	ctx, queue := context.Background(), informer.process.queue
	switch {
	case informer.handler == nil:
	case before == nil:
		informer.handler.Create(ctx, event.CreateEvent{Object: after}, queue)
	case after == nil:
		informer.handler.Delete(ctx, event.DeleteEvent{Object: before}, queue)
	default:
		informer.handler.Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	}
}

// matches tells whether selectors let an object through. Fields are those of the
// operator's indexes.
func matches(object client.Object, byLabel labels.Selector, byField fields.Selector) bool {
	if byLabel != nil && !byLabel.Matches(labels.Set(object.GetLabels())) {
		return false
	}
	if byField == nil || byField.Empty() {
		return true
	}
	known := fields.Set{}
	for _, index := range operator.Indexes() {
		if reflect.TypeOf(index.Object) == reflect.TypeOf(object) {
			for _, value := range index.Values(object) {
				known[index.Field] = value
			}
		}
	}
	return byField.Matches(known)
}

// behind are the informers that have something to hear.
func (process *process) behind() []*informer {
	return slices.DeleteFunc(slices.Clone(process.informers), func(informer *informer) bool { return !informer.isBehind() })
}

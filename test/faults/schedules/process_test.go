// SPDX-License-Identifier: Apache-2.0

package schedules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	discovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
)

// errEnded is what a process that has ended gets for its requests.
var errEnded = errors.New("the process has ended")

// process is one run of the operator: a reconciler with the memory and the cache that
// it has gathered since it began. It is the reconciler's client.
type process struct {
	client.Client
	simulation *simulation
	number     int
	reconciler *operator.Reconciler
	informers  []*informer
	queue      *queue
	// before is what was true before its last look.
	before *before
	// ended: nothing that it asks for is done any more.
	ended bool

	mutex    sync.Mutex
	requests []*call
	// outcome of the last look at a job, until the queue has heard of it.
	outcome *outcome
}

type outcome struct {
	result ctrl.Result
	err    error
}

// call is one request to the API server, which waits until the schedule lets it go.
type call struct {
	verb, kind, name string
	// job is whose object it is about, if it has an owner.
	job types.UID
	// before is what was true before the look that it is of.
	before *before
	// do has it done; fill gives the caller what came of it.
	do     func() error
	fill   func()
	answer chan error
}

func (call *call) isWrite() bool { return call.verb != "get" && call.verb != "list" }

func (call *call) String() string {
	return fmt.Sprintf("%s %s %s", call.verb, call.kind, call.name)
}

// newProcess begins with what its informers list.
func newProcess(simulation *simulation, number int) *process {
	process := &process{simulation: simulation, number: number, queue: newQueue()}
	settings := config.Default()
	settings.ClusterDomain, settings.Agent.Delivery = "cluster.local", config.DeliveryInitContainer
	reconcilers, err := operator.NewReconcilers(operator.Parts{
		Client: process, Live: live{process}, Clock: simulation.clock, Settings: settings, Recorder: simulation,
		Discovery: &discovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: simulation.served()}, FakedServerVersion: &version.Info{GitVersion: "v1.36.5"}},
		Audit:     admission.NewAudit(io.Discard), Registry: prometheus.NewRegistry(), HasJobSet: true,
	})
	if err != nil {
		panic(err)
	}
	process.reconciler = reconcilers[0]
	if simulation.wish.isTrainJob() {
		process.reconciler = reconcilers[1]
	}
	for _, watched := range process.reconciler.Watches() {
		process.informers = append(process.informers, newInformer(process, watched.Object, watched.Handler))
	}
	// Jobs of the other kinds share the namespace's quota.
	others := []client.Object{&v2alpha1.TrainJob{}, &jobset.JobSet{}}
	if simulation.wish.isTrainJob() {
		// Its own informers have the JobSets.
		others = []client.Object{&v2beta1.MPIJob{}}
	}
	for _, other := range others {
		process.informers = append(process.informers, newInformer(process, other, nil))
	}
	return process
}

// look begins to reconcile the next job of the queue.
func (process *process) look() {
	job := process.queue.take()
	process.before = process.simulation.truth()
	go func() {
		found := &outcome{}
		defer func() {
			if problem := recover(); problem != nil {
				process.simulation.fail("the operator panics: %v\n%s", problem, debug.Stack())
			}
			process.mutex.Lock()
			defer process.mutex.Unlock()
			process.outcome = found
		}()
		found.result, found.err = process.reconciler.Reconcile(context.Background(), job)
	}()
}

// conclude tells the queue what came of a look, as controller-runtime does.
func (process *process) conclude() {
	found := process.outcome
	if found == nil {
		return
	}
	process.outcome = nil
	process.simulation.note("looked: %v %v", found.result.RequeueAfter, found.err)
	process.queue.finish(found.result, found.err)
}

// end is a process that is gone between two moments. Some of what it had asked for
// may still reach the API server.
func (process *process) end(arrives func(*call) bool) (late []*call) {
	process.ended = true
	for _, request := range process.waiting() {
		if request.isWrite() && arrives(request) {
			late = append(late, request)
		}
		request.answer <- errEnded
	}
	process.requests = nil
	return late
}

// waiting are the requests that have no answer yet. Those of one moment come from
// several goroutines, in any order.
func (process *process) waiting() []*call {
	slices.SortFunc(process.requests, func(a, b *call) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Clone(process.requests)
}

// ask waits for the schedule to have a request done.
func (process *process) ask(asked *call) error {
	asked.answer, asked.before = make(chan error, 1), process.before
	process.mutex.Lock()
	if process.ended {
		process.mutex.Unlock()
		return errEnded
	}
	process.requests = append(process.requests, asked)
	process.mutex.Unlock()
	return <-asked.answer
}

// reply gives a request its answer.
func (process *process) reply(request *call, err error) {
	process.requests = slices.DeleteFunc(process.requests, func(one *call) bool { return one == request })
	if err == nil {
		request.fill()
	}
	request.answer <- err
}

// write asks for a change, and puts what is stored into the object.
func (process *process) write(verb string, object client.Object, do func(sent client.Object) (client.Object, error)) error {
	// What is on its way is not changed by the caller any more.
	sent := object.DeepCopyObject().(client.Object)
	asked := &call{verb: verb, kind: kindOf(object), name: object.GetName(), job: process.simulation.rootOf(sent)}
	var stored client.Object
	asked.do = func() (err error) {
		stored, err = do(sent)
		return err
	}
	asked.fill = func() {
		if stored != nil {
			copyInto(object, stored)
		}
	}
	return process.ask(asked)
}

func copyInto(object, from runtime.Object) {
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(from.DeepCopyObject()).Elem())
}

func (process *process) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return process.write("create", object, func(sent client.Object) (client.Object, error) {
		process.simulation.admit(sent)
		return process.simulation.server.create(sent)
	})
}

func (process *process) Update(_ context.Context, object client.Object, _ ...client.UpdateOption) error {
	return process.write("update", object, process.simulation.server.update)
}

func (process *process) Delete(_ context.Context, object client.Object, options ...client.DeleteOption) error {
	all := client.DeleteOptions{}
	all.ApplyOptions(options)
	return process.write("delete", object, func(sent client.Object) (client.Object, error) {
		return nil, process.simulation.server.delete(kindOf(sent), client.ObjectKeyFromObject(sent), all)
	})
}

func (process *process) Patch(_ context.Context, object client.Object, patch client.Patch, _ ...client.PatchOption) error {
	content, err := patch.Data(object)
	if err != nil {
		return err
	}
	return process.write("patch", object, func(sent client.Object) (client.Object, error) {
		return process.simulation.server.patch(sent, patch.Type(), content)
	})
}

func (process *process) Status() client.SubResourceWriter { return statusWriter{process: process} }

func (process *process) Scheme() *runtime.Scheme { return process.simulation.scheme }

type statusWriter struct {
	client.SubResourceWriter
	process *process
}

func (writer statusWriter) Update(_ context.Context, object client.Object, _ ...client.SubResourceUpdateOption) error {
	return writer.process.write("status", object, writer.process.simulation.server.updateStatus)
}

// Get and List of a process are those of its cache.
func (process *process) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	found := process.informer(kindOf(object)).objects[key]
	if found == nil {
		return apierrors.NewNotFound(resource(kindOf(object)), key.Name)
	}
	copyInto(object, found)
	return nil
}

func (process *process) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	return fillList(list, inOrder(process.informer(kindOf(list)).objects), options)
}

func (process *process) informer(kind string) *informer {
	for _, informer := range process.informers {
		if informer.kind == kind {
			return informer
		}
	}
	panic("the operator reads " + kind + " from a cache that does not have it")
}

// live reads past the cache.
type live struct{ process *process }

func (live live) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	var found client.Object
	return live.process.ask(&call{verb: "get", kind: kindOf(object), name: key.Name, do: func() (err error) {
		found, err = live.process.simulation.server.get(kindOf(object), key)
		return err
	}, fill: func() { copyInto(object, found) }})
}

func (live live) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var found []client.Object
	err := live.process.ask(&call{verb: "list", kind: kindOf(list), do: func() error {
		found = live.process.simulation.server.all(kindOf(list))
		if now := live.process.simulation.truth(); now.unplaced && kindOf(list) == "Pod" {
			live.process.before.unplaced = true
		}
		return nil
	}, fill: func() {}})
	if err != nil {
		return err
	}
	return fillList(list, found, options)
}

func fillList(list client.ObjectList, objects []client.Object, options []client.ListOption) error {
	wanted := client.ListOptions{}
	wanted.ApplyOptions(options)
	items := []runtime.Object{}
	for _, object := range objects {
		if wanted.Namespace != "" && object.GetNamespace() != wanted.Namespace {
			continue
		}
		if !matches(object, wanted.LabelSelector, wanted.FieldSelector) {
			continue
		}
		items = append(items, object.DeepCopyObject())
	}
	return meta.SetList(list, items)
}

// clock is the operator's: it may be wrong.
type clock struct{ ahead time.Duration }

func (clock *clock) Now() time.Time                     { return time.Now().Add(clock.ahead) }
func (clock *clock) Since(past time.Time) time.Duration { return clock.Now().Sub(past) }

// served are the kinds that discovery finds.
func (simulation *simulation) served() []*metav1.APIResourceList {
	if !simulation.wish.gang {
		return nil
	}
	return []*metav1.APIResourceList{{GroupVersion: "scheduling.x-k8s.io/v1alpha1", APIResources: []metav1.APIResource{
		{Name: "podgroups", Kind: "PodGroup", Namespaced: true, Verbs: metav1.Verbs{"create", "get", "delete"}},
	}}}
}

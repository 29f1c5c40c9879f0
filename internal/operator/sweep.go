// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const (
	// usesSnapshot is the index of TrainJobs by the name of their snapshot.
	usesSnapshot = "status.runtimeDigest"
	// undecided is its value for jobs that may still choose any snapshot.
	undecided = "undecided"
	// sweepPause is how long a snapshot is kept while a job is undecided.
	sweepPause = 30 * time.Second
)

// snapshotOf returns the values of the index usesSnapshot for a job. A job of another
// operator has no snapshot, and a job that is being deleted does not choose one.
func snapshotOf(object client.Object) []string {
	trainJob := object.(*v2alpha1.TrainJob)
	switch {
	case trainJob.Status.RuntimeDigest != "":
		return []string{plan.SnapshotName(trainJob.Status.RuntimeDigest)}
	case trainJob.DeletionTimestamp != nil || (trainJobs{}).isForeign(trainJob):
		return nil
	}
	return []string{undecided}
}

// sweep deletes a snapshot that no job needs. It returns when to check again.
//
// No job can choose the snapshot meanwhile. A job that has chosen it is in the cache,
// where it is undecided until its status has the digest. A new job finds the snapshot in
// deleting, and waits.
func (s *snapshots) sweep(ctx context.Context, key client.ObjectKey) (time.Duration, error) {
	revision := &appsv1.ControllerRevision{}
	if err := s.Get(ctx, key, revision); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if s.wasRemoved(key, revision.UID) {
		return 0, nil
	}
	s.setDeleting(key, true)
	defer s.setDeleting(key, false)
	// The order matters: a job that chooses in between is found by its digest.
	if jobs, err := s.users(ctx, key, undecided); err != nil || len(jobs) > 0 {
		return sweepPause, err
	}
	if jobs, err := s.users(ctx, key, key.Name); err != nil || len(jobs) > 0 {
		return 0, err
	}
	return 0, s.remove(ctx, revision)
}

// remove deletes a snapshot. Preconditions protect a newer one of the same name.
func (s *snapshots) remove(ctx context.Context, revision *appsv1.ControllerRevision) error {
	err := s.Delete(ctx, revision, client.Preconditions{UID: &revision.UID, ResourceVersion: &revision.ResourceVersion})
	if apierrors.IsConflict(err) {
		// The cache shows an older one.
		return nil
	}
	// The response may be lost: the snapshot is then created again, or found to exist.
	key := client.ObjectKeyFromObject(revision)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if client.IgnoreNotFound(err) != nil {
		delete(s.verified, key)
		return fmt.Errorf("delete ControllerRevision %s: %w", key, err)
	}
	delete(s.verified, key)
	s.removed[key] = revision.UID
	return nil
}

func (s *snapshots) wasRemoved(key client.ObjectKey, uid types.UID) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.removed[key] == uid
}

func (s *snapshots) setDeleting(key client.ObjectKey, is bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !is {
		delete(s.deleting, key)
		return
	}
	s.deleting[key] = true
}

// addJob records a job that has no digest yet. Jobs of other kinds have no runtime.
func (s *snapshots) addJob(object client.Object) {
	if s == nil {
		return
	}
	if trainJob := object.(*v2alpha1.TrainJob); trainJob.Status.RuntimeDigest == "" {
		s.reads.addJob(trainJob.UID)
		return
	}
	s.forgetChoice(object.GetUID())
}

// forgetChoice forgets the chosen digest of a job, once its status has it.
func (s *snapshots) forgetChoice(uid types.UID) {
	s.reads.forget(uid)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.chosen, uid)
}

// forget drops a deleted job, and enqueues its snapshot: it may not be needed any more.
func (s *snapshots) forget(deleted client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if s == nil {
		return
	}
	s.forgetChoice(deleted.GetUID())
	if digest := deleted.(*v2alpha1.TrainJob).Status.RuntimeDigest; digest != "" {
		queue.Add(requestOf(deleted.GetNamespace(), plan.SnapshotName(digest)))
	}
}

// watch enqueues new snapshots, which may not be needed, and a job whose snapshot was
// deleted.
func (s *snapshots) watch() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(_ context.Context, created event.CreateEvent, queue queue) {
			queue.Add(requestOf(created.Object.GetNamespace(), created.Object.GetName()))
		},
		DeleteFunc: func(ctx context.Context, deleted event.DeleteEvent, queue queue) {
			s.forgetSnapshot(deleted.Object)
			// The reconcile of a job that needs it creates it again.
			if jobs, err := s.users(ctx, client.ObjectKeyFromObject(deleted.Object), deleted.Object.GetName()); err == nil && len(jobs) > 0 {
				queue.Add(requestOf(jobs[0].Namespace, jobs[0].Name))
			}
		},
	}
}

// users returns jobs of a snapshot's namespace with a value of the index usesSnapshot.
// One is enough.
func (s *snapshots) users(ctx context.Context, key client.ObjectKey, value string) ([]v2alpha1.TrainJob, error) {
	var jobs v2alpha1.TrainJobList
	err := s.List(ctx, &jobs, client.InNamespace(key.Namespace), client.MatchingFields{usesSnapshot: value}, client.Limit(1), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the TrainJobs that need ControllerRevision %s: %w", key, err)
	}
	return jobs.Items, nil
}

// forgetSnapshot drops a deleted snapshot.
func (s *snapshots) forgetSnapshot(deleted client.Object) {
	key := client.ObjectKeyFromObject(deleted)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.verified[key].uid == deleted.GetUID() {
		delete(s.verified, key)
	}
	if s.removed[key] == deleted.GetUID() {
		delete(s.removed, key)
	}
}

// enqueueAll enqueues all snapshots.
func (s *snapshots) enqueueAll(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	if s == nil {
		return nil
	}
	var all appsv1.ControllerRevisionList
	if err := s.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the snapshots of runtimes: %w", err)
	}
	for i := range all.Items {
		queue.Add(requestOf(all.Items[i].Namespace, all.Items[i].Name))
	}
	return nil
}

func requestOf(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

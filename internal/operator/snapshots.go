// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;delete

// snapshots stores the runtimes that TrainJobs were created from. The jobs of a
// namespace share one ControllerRevision for each content, whose name is derived from
// the digest of that content. The content is compared with the digest on every read, so
// it does not matter which client wrote it.
type snapshots struct {
	client.Client
	live  client.Reader
	clock clock.PassiveClock
	cache *runtimeCache
	reads *runtimeReads

	mutex sync.Mutex
	// verified are the snapshots whose content this process has compared or written.
	verified map[client.ObjectKey]verification
	// deleting are the snapshots that are about to be deleted, and removed those that were:
	// the cache may still show them.
	deleting map[client.ObjectKey]bool
	removed  map[client.ObjectKey]types.UID
	// chosen are the digests of jobs whose status does not have one yet.
	chosen map[types.UID]string
}

type verification struct {
	uid types.UID
	at  time.Time
}

func newSnapshots(parts Parts) *snapshots {
	return &snapshots{
		Client: parts.Client, live: parts.Live, clock: parts.Clock, cache: newRuntimeCache(maxRuntimeCache), reads: newRuntimeReads(),
		verified: map[client.ObjectKey]verification{}, deleting: map[client.ObjectKey]bool{}, removed: map[client.ObjectKey]types.UID{}, chosen: map[types.UID]string{},
	}
}

// sharedRuntime is a runtime and its digest. Many jobs share it: it is never modified.
type sharedRuntime struct {
	digest string
	spec   *v2alpha1.TrainingRuntimeSpec
}

// of returns the runtime of a job: the one with the stored digest, or else the current
// one. An obstacle says why there is none.
func (s *snapshots) of(ctx context.Context, trainJob *v2alpha1.TrainJob, stored string) (*sharedRuntime, *diagnosis.Condition, error) {
	if stored == "" {
		stored = s.choiceOf(trainJob.UID)
	}
	if stored == "" {
		return s.choose(ctx, trainJob)
	}
	found, obstacle, err := s.read(ctx, trainJob, stored)
	if found == nil {
		return nil, obstacle, err
	}
	// A failure to store it again does not stop the job, since its runtime is known: the
	// namespace may be terminating, or the name may be taken.
	if _, err = s.ensure(ctx, trainJob.Namespace, found); err != nil {
		return nil, nil, err
	}
	return found, nil, nil
}

// choose returns the current runtime for a job that has no digest yet.
func (s *snapshots) choose(ctx context.Context, trainJob *v2alpha1.TrainJob) (*sharedRuntime, *diagnosis.Condition, error) {
	found, obstacle, err := s.reads.newest(ctx, trainJob, func() (*sharedRuntime, *diagnosis.Condition, error) {
		found, err := s.current(ctx, trainJob)
		if apierrors.IsNotFound(err) {
			reference := trainJob.Spec.RuntimeRef
			return nil, &diagnosis.Condition{Reason: "RuntimeNotFound", Message: fmt.Sprintf(
				"%s %s was deleted after the job was created. Create it again, or delete the job.", reference.Kind, reference.Name)}, nil
		}
		if err != nil {
			return nil, nil, err
		}
		obstacle, err := s.ensure(ctx, trainJob.Namespace, found)
		return found, obstacle, err
	})
	if obstacle != nil || err != nil {
		return nil, obstacle, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.chosen[trainJob.UID] = found.digest
	return found, nil, nil
}

func (s *snapshots) choiceOf(uid types.UID) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.chosen[uid]
}

// current reads the current runtime from the API server, so that a job that is created
// after a change of the runtime uses the change. A runtime that is being deleted counts
// as missing.
func (s *snapshots) current(ctx context.Context, trainJob *v2alpha1.TrainJob) (*sharedRuntime, error) {
	key, object, spec := jobview.RuntimeToRead(trainJob.Namespace, trainJob.Spec.RuntimeRef)
	if err := s.live.Get(ctx, key, object); err != nil {
		return nil, fmt.Errorf("read the job's runtime: %w", err)
	}
	if object.GetDeletionTimestamp() != nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: training.Group, Resource: "trainingruntimes"}, key.Name)
	}
	digest, content, err := job.RuntimeDigest(spec)
	if err != nil {
		return nil, err
	}
	return s.cache.put(&sharedRuntime{digest, spec}, len(content)), nil
}

// read returns the runtime with a digest: from memory, from its snapshot, or else the
// current runtime if that has the digest.
func (s *snapshots) read(ctx context.Context, trainJob *v2alpha1.TrainJob, digest string) (*sharedRuntime, *diagnosis.Condition, error) {
	if found := s.cache.get(digest); found != nil {
		return found, nil, nil
	}
	key := client.ObjectKey{Namespace: trainJob.Namespace, Name: plan.SnapshotName(digest)}
	found, fault, err := s.verify(ctx, key, digest)
	if found != nil || err != nil {
		return found, nil, err
	}
	current, err := s.current(ctx, trainJob)
	if err == nil && current.digest == digest {
		return current, nil, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, err
	}
	return nil, &diagnosis.Condition{Reason: "RuntimeSnapshotLost", Message: fmt.Sprintf(
		"The job was created with a runtime that is stored in ControllerRevision %s. %s, and %s %s has changed since or is missing. Restore the ControllerRevision from a backup, or delete the job and create it again.",
		key.Name, fault, trainJob.Spec.RuntimeRef.Kind, trainJob.Spec.RuntimeRef.Name)}, nil
}

// verify reads a snapshot from the API server, because the cache has no content. The
// fault says what is wrong with it.
func (s *snapshots) verify(ctx context.Context, key client.ObjectKey, digest string) (found *sharedRuntime, fault string, err error) {
	revision := &appsv1.ControllerRevision{}
	err = s.live.Get(ctx, key, revision)
	if apierrors.IsNotFound(err) {
		return nil, "It does not exist", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read ControllerRevision %s: %w", key, err)
	}
	spec, err := job.RuntimeFrom(revision.Data.Raw, digest)
	if err != nil {
		return nil, fmt.Sprintf("Its content is not that runtime: %s", err), nil
	}
	s.noteVerified(key, revision.UID)
	return s.cache.put(&sharedRuntime{digest, spec}, len(revision.Data.Raw)), "", nil
}

// ensure creates the snapshot of a runtime unless it exists.
func (s *snapshots) ensure(ctx context.Context, namespace string, wanted *sharedRuntime) (*diagnosis.Condition, error) {
	key := client.ObjectKey{Namespace: namespace, Name: plan.SnapshotName(wanted.digest)}
	switch state, err := s.look(ctx, key); {
	case err != nil:
		return nil, err
	case state == snapshotIsRight:
		return nil, nil
	case state == snapshotIsUnknown:
		return s.accept(ctx, key, wanted)
	}
	_, content, err := job.RuntimeDigest(wanted.spec)
	if err != nil {
		return nil, err
	}
	revision := plan.Snapshot(namespace, wanted.digest, content)
	err = s.Create(ctx, revision)
	switch {
	case err == nil:
		s.noteVerified(key, revision.UID)
		return nil, nil
	case apierrors.IsAlreadyExists(err):
		return s.accept(ctx, key, wanted)
	case apierrors.IsForbidden(err) && !lacksPermission(err.Error()):
		return &diagnosis.Condition{Reason: "RuntimeNotStored", Message: fmt.Sprintf(
			"ControllerRevision %s, which stores the job's runtime, could not be created: %s. The operator retries", key.Name, err)}, nil
	}
	return nil, fmt.Errorf("create ControllerRevision %s: %w", key, err)
}

// accept verifies a snapshot that exists already. It never overwrites one.
func (s *snapshots) accept(ctx context.Context, key client.ObjectKey, wanted *sharedRuntime) (*diagnosis.Condition, error) {
	found, fault, err := s.verify(ctx, key, wanted.digest)
	if found != nil || err != nil {
		return nil, err
	}
	return &diagnosis.Condition{Reason: "NameTaken", Message: fmt.Sprintf(
		"ControllerRevision %s must store the job's runtime. %s. Delete it if it exists; the operator then creates it again.", key.Name, fault)}, nil
}

// snapshotState is what the cache and this process know of a snapshot.
type snapshotState int

const (
	snapshotIsMissing snapshotState = iota
	snapshotIsRight
	// snapshotIsUnknown means that it exists and its content was not verified yet.
	snapshotIsUnknown
)

func (s *snapshots) look(ctx context.Context, key client.ObjectKey) (snapshotState, error) {
	revision := &appsv1.ControllerRevision{}
	err := s.Get(ctx, key, revision)
	if client.IgnoreNotFound(err) != nil {
		return snapshotIsMissing, fmt.Errorf("read ControllerRevision %s from the cache: %w", key, err)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.deleting[key] {
		return snapshotIsMissing, apierrors.NewConflict(appsv1.Resource("controllerrevisions"), key.Name, fmt.Errorf("it is being deleted"))
	}
	known, isKnown := s.verified[key]
	switch {
	case err == nil && isKnown && known.uid == revision.UID:
		return snapshotIsRight, nil
	case isKnown && s.clock.Since(known.at) < cachePatience:
		// The cache does not show it yet.
		return snapshotIsRight, nil
	case err == nil && s.removed[key] != revision.UID:
		return snapshotIsUnknown, nil
	}
	return snapshotIsMissing, nil
}

// isUnseen reports whether the cache does not show a job's snapshot yet.
func (s *snapshots) isUnseen(ctx context.Context, j *job.Job) bool {
	if s == nil {
		return false
	}
	key := client.ObjectKey{Namespace: j.Namespace, Name: plan.SnapshotName(j.RuntimeDigest)}
	return apierrors.IsNotFound(s.Get(ctx, key, &appsv1.ControllerRevision{}))
}

func (s *snapshots) noteVerified(key client.ObjectKey, uid types.UID) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.verified[key] = verification{uid, s.clock.Now()}
	delete(s.removed, key)
}

// dropContent keeps the content of snapshots out of the cache: it may be 1 MiB and is
// read only once.
func dropContent(object any) (any, error) {
	if revision, is := object.(*appsv1.ControllerRevision); is {
		revision.ManagedFields, revision.Data.Raw = nil, nil
	}
	return object, nil
}

// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// schedulers are all gang schedulers, each from its own file, in the order of
// preference. The native one is last: Kubernetes has it turned off by default and changes
// it with each release, while a cluster administrator has installed the others on purpose.
var schedulers = []scheduler{coschedulingScheduler, volcanoScheduler, kaiScheduler, nativeScheduler}

// scheduler describes a gang scheduler.
type scheduler struct {
	name job.Scheduler
	// kinds of its PodGroup, the preferred one first. All have the same group and kind.
	kinds []schema.GroupVersionKind
	// podScheduler is the schedulerName for pods that set none; empty sets none.
	podScheduler string
	// backend for one of the kinds, and pods with a schedulerName.
	backend func(kind schema.GroupVersionKind, podScheduler string) Backend
	// hasQueues: the queue of a job's scheduling policy may be one of its queues.
	hasQueues bool
	// remedy is what a cluster administrator must do in a cluster without it.
	remedy string
}

// Available are the gang schedulers that a cluster has.
type Available struct {
	// Served are the kinds of PodGroups that the API server serves.
	Served []schema.GroupVersionKind
	// CoschedulerName is the name of the scheduler with the plugin Coscheduling. It comes
	// from the operator's configuration, because it cannot be discovered; empty is
	// DefaultCoschedulerName.
	CoschedulerName string
}

// kindOf is the preferred kind of a scheduler's PodGroup that the cluster serves.
func (a *Available) kindOf(s *scheduler) (kind schema.GroupVersionKind, served bool) {
	for _, kind := range s.kinds {
		if slices.Contains(a.Served, kind) {
			return kind, true
		}
	}
	return schema.GroupVersionKind{}, false
}

// podScheduler is the schedulerName for pods that set none.
func (a *Available) podScheduler(s *scheduler) string {
	if s.name == job.Coscheduling && a.CoschedulerName != "" {
		return a.CoschedulerName
	}
	return s.podScheduler
}

// backendOf is the backend for pods with this schedulerName, which may be empty.
func (a *Available) backendOf(s *scheduler, kind schema.GroupVersionKind, podScheduler string) Backend {
	if podScheduler == "" {
		podScheduler = a.podScheduler(s)
	}
	return s.backend(kind, podScheduler)
}

// apiOf names a kind in a sentence: PodGroup of scheduling.k8s.io/v1beta1.
func apiOf(kind schema.GroupVersionKind) string {
	return fmt.Sprintf("%s of %s", kind.Kind, kind.GroupVersion())
}

// api names the kind and the versions that a cluster with the scheduler serves.
func (s *scheduler) api() string {
	text := apiOf(s.kinds[0])
	for _, kind := range s.kinds[1:] {
		text += " or " + kind.Version
	}
	return text
}

// Kinds are the kinds of a scheduler's PodGroup, the preferred one first.
func Kinds(name job.Scheduler) []schema.GroupVersionKind {
	for i := range schedulers {
		if schedulers[i].name == name {
			return slices.Clone(schedulers[i].kinds)
		}
	}
	return nil
}

// Names are the gang schedulers that a runtime can set.
func Names() (names []job.Scheduler) {
	for i := range schedulers {
		names = append(names, schedulers[i].name)
	}
	return names
}

// HasQueues reports whether a scheduler uses the queue of a job's scheduling policy.
func HasQueues(name job.Scheduler) bool {
	return slices.ContainsFunc(schedulers, func(s scheduler) bool { return s.name == name && s.hasQueues })
}

// namesWithQueues are the schedulers that have queues.
func namesWithQueues() []job.Scheduler {
	return slices.DeleteFunc(Names(), func(name job.Scheduler) bool { return !HasQueues(name) })
}

// GroupKinds are the kinds of the PodGroups of all schedulers.
func GroupKinds() (kinds []schema.GroupVersionKind) {
	for i := range schedulers {
		kinds = append(kinds, schedulers[i].kinds...)
	}
	return kinds
}

// ListNames returns all names as part of a sentence: coscheduling, volcano, kai and native.
func ListNames() string { return joinNames(Names()) }

// joinNames lists names in a sentence: coscheduling, volcano and native.
func joinNames(names []job.Scheduler) string {
	var texts []string
	for _, name := range names {
		texts = append(texts, string(name))
	}
	last := len(texts) - 1
	if last < 1 {
		return strings.Join(texts, "")
	}
	return strings.Join(texts[:last], ", ") + " and " + texts[last]
}

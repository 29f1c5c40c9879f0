// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// maxEvents is how many warnings are shown: the newest.
const maxEvents = 5

// warning is an event with its number and its last time.
type warning struct {
	*corev1.Event
	times int32
	last  time.Time
}

// events reports warning events about the job and its pods. Events with the same
// reason and message are one finding.
func events(facts *Facts) (findings []Finding) {
	if facts.hasSucceeded() {
		return nil
	}
	if facts.Events.Unknown != "" {
		return unknown("Events", facts.Events.Unknown)
	}
	for _, found := range facts.warnings() {
		finding := Finding{
			Rank: facts.eventRank(found.Reason), Title: "Warning: " + found.Reason, Cause: strings.TrimSpace(found.Message),
			Object: strings.ToLower(found.InvolvedObject.Kind) + "/" + found.InvolvedObject.Name, Documentation: pageFailures,
			Fix: fmt.Sprintf("kubectl describe %s %s -n %s", strings.ToLower(found.InvolvedObject.Kind), found.InvolvedObject.Name, facts.Namespace),
		}
		if found.times > 1 {
			finding.Title += fmt.Sprintf(" (%d times)", found.times)
		}
		findings = append(findings, finding)
	}
	return findings
}

// eventRank is Note for events that another check explains better.
func (facts *Facts) eventRank(reason string) Rank {
	switch {
	case reason == "FailedCreate" && !facts.hasFailed():
		return facts.rank(Likely, training.StepScheduled)
	case reason == "FailedScheduling", reason == "Failed", reason == "BackOff", slices.Contains(imageReasons, reason), facts.reached(training.StepWorkersReached) && !facts.hasFailed():
		return Note
	default:
		return Possible
	}
}

// warnings returns the newest events, the newest first, without those that only repeat
// the failure of the job or follow from it.
func (facts *Facts) warnings() []*warning {
	groups := map[string]*warning{}
	var order []*warning
	for i := range facts.Events.Value {
		event := &facts.Events.Value[i]
		if event.Type != corev1.EventTypeWarning || facts.hasFailed() && facts.followsFromFailure(event) {
			continue
		}
		key := event.Reason + "\n" + event.Message
		// Kubelets repeat image events for each pod, with different messages.
		if slices.Contains(imageReasons, event.Reason) {
			key = event.Reason
		}
		if groups[key] == nil {
			groups[key] = &warning{Event: event}
			order = append(order, groups[key])
		}
		groups[key].times += timesSeen(event)
		if last := lastSeen(event); last.After(groups[key].last) {
			groups[key].last = last
		}
	}
	slices.SortStableFunc(order, func(a, b *warning) int {
		return cmp.Or(b.last.Compare(a.last), strings.Compare(a.InvolvedObject.Name, b.InvolvedObject.Name), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
	})
	return order[:min(len(order), maxEvents)]
}

// consequences are event reasons of pods that have not started or are being deleted.
var consequences = []string{"Unhealthy"}

// followsFromFailure reports whether an event only repeats or follows from the failure
// of the job.
func (facts *Facts) followsFromFailure(event *corev1.Event) bool {
	end := facts.Previous.CompletionTime
	return slices.Contains(consequences, event.Reason) || strings.Contains(event.Message, facts.Previous.FailureMessage) ||
		end != nil && !lastSeen(event).Before(end.Time)
}

func timesSeen(event *corev1.Event) int32 {
	if event.Series != nil {
		return max(event.Series.Count, 1)
	}
	return max(event.Count, 1)
}

func lastSeen(event *corev1.Event) time.Time {
	last := event.LastTimestamp.Time
	if event.EventTime.After(last) {
		last = event.EventTime.Time
	}
	if event.Series != nil && event.Series.LastObservedTime.After(last) {
		last = event.Series.LastObservedTime.Time
	}
	return last
}

// isAbout reports whether an event is about the job or one of its objects.
func (facts *Facts) isAbout(event *corev1.Event) bool {
	object := &event.InvolvedObject
	if facts.Job != nil && object.UID != "" && object.UID == facts.Job.UID {
		return true
	}
	if !lastSeen(event).IsZero() && lastSeen(event).Before(facts.Previous.Submitted.Time) {
		return false
	}
	if object.Name == facts.Name {
		return object.Kind == string(facts.Kind) || object.Kind == "JobSet" || object.Kind == "PodGroup"
	}
	for _, role := range []string{training.RoleLauncher, training.RoleWorker, training.RoleInitializer} {
		if rest, found := strings.CutPrefix(object.Name, facts.Name+"-"+role); found && (rest == "" || rest[0] == '-') {
			return true
		}
	}
	return false
}

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

// mostEvents is how many warnings are shown: the newest.
const mostEvents = 5

// warning is an event that was seen, once or often.
type warning struct {
	*corev1.Event
	times int32
	last  time.Time
}

// events are the warnings about the job and its pods, those with the same words as
// one.
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

// eventRank: what another check explains better is only a note.
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

// warnings are the newest, the newest first. What the operator said of the failure
// is not said again, and neither is what followed from it.
func (facts *Facts) warnings() []*warning {
	groups := map[string]*warning{}
	var order []*warning
	for i := range facts.Events.Value {
		event := &facts.Events.Value[i]
		if event.Type != corev1.EventTypeWarning || facts.hasFailed() && facts.followsFromFailure(event) {
			continue
		}
		key := event.Reason + "\n" + event.Message
		// Of images each pod is told, again and again.
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
	return order[:min(len(order), mostEvents)]
}

// consequences are what kubelets say of pods that have not started yet or are being
// deleted.
var consequences = []string{"Unhealthy"}

// followsFromFailure tells whether an event says no more than that the job failed.
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

// isAbout tells whether an event is about the job or something of it.
func (facts *Facts) isAbout(event *corev1.Event) bool {
	of := &event.InvolvedObject
	if facts.Job != nil && of.UID != "" && of.UID == facts.Job.UID {
		return true
	}
	if !lastSeen(event).IsZero() && lastSeen(event).Before(facts.Previous.Submitted.Time) {
		return false
	}
	if of.Name == facts.Name {
		return of.Kind == string(facts.Kind) || of.Kind == "JobSet" || of.Kind == "PodGroup"
	}
	for _, role := range []string{training.RoleLauncher, training.RoleWorker, training.RoleInitializer} {
		if rest, found := strings.CutPrefix(of.Name, facts.Name+"-"+role); found && (rest == "" || rest[0] == '-') {
			return true
		}
	}
	return false
}

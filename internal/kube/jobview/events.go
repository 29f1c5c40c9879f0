// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventsPage is the page size of event lists: a namespace may have many events of other
// jobs.
const eventsPage = 500

// Events returns the events of a job and the warnings of its pods, oldest first. Normal
// events of pods are not included: the timeline shows the same.
func Events(ctx context.Context, from client.Reader, view *View, pods map[string]bool) ([]corev1.Event, error) {
	var result []corev1.Event
	for kind, wanted := range map[string]func(*corev1.Event) bool{
		string(view.Kind.Kind): func(event *corev1.Event) bool {
			return event.InvolvedObject.Name == view.GetName() && event.InvolvedObject.UID == view.GetUID()
		},
		"Pod": func(event *corev1.Event) bool {
			return pods[event.InvolvedObject.Name] && event.Type == corev1.EventTypeWarning
		},
	} {
		options := &client.ListOptions{Namespace: view.GetNamespace(), FieldSelector: fields.OneTermEqualSelector("involvedObject.kind", kind), Limit: eventsPage}
		for next := true; next; next = options.Continue != "" {
			var events corev1.EventList
			if err := from.List(ctx, &events, options); err != nil {
				return nil, err
			}
			for i := range events.Items {
				if wanted(&events.Items[i]) {
					result = append(result, events.Items[i])
				}
			}
			options.Continue = events.Continue
		}
	}
	slices.SortStableFunc(result, func(one, other corev1.Event) int {
		if order := EventTime(&one).Compare(EventTime(&other)); order != 0 {
			return order
		}
		return slices.Compare([]string{one.InvolvedObject.Name, one.Reason, one.Name}, []string{other.InvolvedObject.Name, other.Reason, other.Name})
	})
	return result, nil
}

// EventTime returns the time of an event, from whichever field has it.
func EventTime(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	default:
		return event.CreationTimestamp.Time
	}
}

package jobview

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// eventsPage is how many events are read at a time: a namespace may have very many, of
// other jobs.
const eventsPage = 500

// Events are the events of a job, and the warnings of its pods, oldest first. That
// images were pulled and containers started, the timeline says already.
func Events(ctx context.Context, from client.Reader, seen *View, pods map[string]bool) ([]corev1.Event, error) {
	var found []corev1.Event
	for kind, wanted := range map[string]func(*corev1.Event) bool{
		string(seen.Kind.Kind): func(event *corev1.Event) bool {
			return event.InvolvedObject.Name == seen.GetName() && event.InvolvedObject.UID == seen.GetUID()
		},
		"Pod": func(event *corev1.Event) bool {
			return pods[event.InvolvedObject.Name] && event.Type == corev1.EventTypeWarning
		},
	} {
		options := &client.ListOptions{Namespace: seen.GetNamespace(), FieldSelector: fields.OneTermEqualSelector("involvedObject.kind", kind), Limit: eventsPage}
		for next := true; next; next = options.Continue != "" {
			var events corev1.EventList
			if err := from.List(ctx, &events, options); err != nil {
				return nil, err
			}
			for i := range events.Items {
				if wanted(&events.Items[i]) {
					found = append(found, events.Items[i])
				}
			}
			options.Continue = events.Continue
		}
	}
	slices.SortStableFunc(found, func(one, other corev1.Event) int {
		if order := Happened(&one).Compare(Happened(&other)); order != 0 {
			return order
		}
		return slices.Compare([]string{one.InvolvedObject.Name, one.Reason, one.Name}, []string{other.InvolvedObject.Name, other.Reason, other.Name})
	})
	return found, nil
}

// Happened is when an event was, in whichever of its fields that is written.
func Happened(event *corev1.Event) time.Time {
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

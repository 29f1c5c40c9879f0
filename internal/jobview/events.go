package jobview

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
		var events corev1.EventList
		err := from.List(ctx, &events, client.InNamespace(seen.GetNamespace()), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.kind", kind)})
		if err != nil {
			return nil, err
		}
		for i := range events.Items {
			if wanted(&events.Items[i]) {
				found = append(found, events.Items[i])
			}
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

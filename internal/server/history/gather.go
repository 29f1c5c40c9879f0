// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/engine/redact"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// maxEvents is how many events of a job are kept: the newest.
const maxEvents = 500

// follow reads the launcher's log into a spool until the job has finished.
func (r *recorder) follow(ctx context.Context, t *tracked, lines *spool) error {
	select {
	case <-t.started:
	case <-t.finished:
	case <-ctx.Done():
		return ctx.Err()
	}
	view := t.view()
	model := view.Identity()
	model.Worker.Replicas = math.MaxInt32
	selection := joblog.Selection{Roles: []string{training.RoleLauncher}}
	selection.Tags = view.Tags(ctx, r.client)
	source := joblog.FromCluster(r.cluster.CoreV1(), model)
	var none *joblog.NoPodsError
	for line, err := range joblog.Redacted(joblog.Stream(ctx, source, selection, joblog.Options{Follow: true, Ended: t.finished})) {
		if errors.As(err, &none) && !isClosed(t.started) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the launcher's log: %w", err)
		}
		lines.add(lineOf(line))
	}
	return nil
}

func lineOf(line joblog.Line) history.Line {
	kept := history.Line{Time: line.Time, Pod: line.Pod, Text: line.Text}
	if line.Rank != joblog.NoRank {
		kept.Rank = &line.Rank
	}
	return kept
}

// gather returns the record of a job without its log. What cannot be read is missing in the
// record, and returned as errors.
func (r *recorder) gather(ctx context.Context, t *tracked, key history.Key) (*history.Record, []error) {
	view := t.view()
	record := &history.Record{Summary: r.summary(view, key)}
	encoded, encodeErr := encode(view)
	record.Job = encoded
	events, eventsErr := r.events(ctx, view)
	record.Events = events
	problems := []error{encodeErr, eventsErr}
	if r.reports != nil && !isClosed(t.deleted) {
		curves, err := r.reports.Curves(ctx, key.Kind, view.GetNamespace(), view.GetName())
		if err == nil {
			record.Curves = curves.Curves
		}
		problems = append(problems, err)
	}
	return record, problems
}

func (r *recorder) summary(view *jobview.View, key history.Key) history.Summary {
	// Its state is the one before its deletion.
	view.SetDeletionTimestamp(nil)
	summary := history.Summary{
		Key: key, Namespace: view.GetNamespace(), Name: view.GetName(), State: view.State(), Deleted: !view.Finished(),
		FailureReason: string(view.FailureReason), Message: redact.Text(view.Explanation()), CreationTime: view.GetCreationTimestamp().Time, FinishTime: r.clock.Now(),
	}
	if view.StartTime != nil {
		summary.StartTime = new(view.StartTime.Time)
	}
	if view.CompletionTime != nil {
		summary.FinishTime = view.CompletionTime.Time
	}
	return summary
}

// encode returns a job as kubectl prints it.
func encode(view *jobview.View) (json.RawMessage, error) {
	view.SetManagedFields(nil)
	return json.Marshal(view.Object)
}

// events returns the events of a job and the warnings of its pods, oldest first.
func (r *recorder) events(ctx context.Context, view *jobview.View) ([]history.RecordedEvent, error) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(view.GetNamespace()), client.MatchingLabels(plan.Selector(view.Identity()))); err != nil {
		return nil, fmt.Errorf("list the pods of the job: %w", err)
	}
	names := map[string]bool{}
	for i := range pods.Items {
		names[pods.Items[i].Name] = true
	}
	found, err := jobview.Events(ctx, r.client, view, names)
	if err != nil {
		return nil, fmt.Errorf("list the events of the job: %w", err)
	}
	events := []history.RecordedEvent{}
	newest := found[max(0, len(found)-maxEvents):]
	for i := range newest {
		event := &newest[i]
		events = append(events, history.RecordedEvent{
			Type: event.Type, Reason: event.Reason, Message: redact.Text(event.Message), Time: jobview.EventTime(event),
			Object: event.InvolvedObject.Kind + "/" + event.InvolvedObject.Name, Count: max(event.Count, 1),
		})
	}
	return events, nil
}

// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/server/grpcapi/objects"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// recordJob tells the audit which job a call changes. A dry run changes nothing.
func recordJob(ctx context.Context, ref jobservice.JobRef, dryRun bool) {
	r := auth.RecordFrom(ctx)
	r.Kind, r.Namespace, r.Name = string(ref.Kind.Kind), ref.Namespace, ref.Name
	if dryRun {
		r.Verb = ""
	}
}

// changeRequest is a request to create or delete a job, or a dry run of it.
type changeRequest interface {
	jobRequest
	GetDryRun() bool
}

// create creates the job in message, and copies the result to stored.
func (s *shared) create(ctx context.Context, kind *jobview.Kind, request changeRequest, hasSpec bool, message, stored proto.Message) error {
	ref := jobservice.JobRef{Kind: kind, Namespace: request.GetNamespace(), Name: request.GetName()}
	recordJob(ctx, ref, request.GetDryRun())
	if err := checkNames(nameField{field: "namespace", value: ref.Namespace}, nameField{field: "name", value: ref.Name, optional: true}); err != nil {
		return err
	}
	if !hasSpec {
		return invalid("spec", "spec is required")
	}
	object := kind.NewObject()
	if err := objects.FromMessage(message, object); err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind.GVK)
	if ref.Name == "" {
		object.SetGenerateName(kind.Command + "-")
	}
	created, err := s.service.Create(ctx, kind, ref.Namespace, object, request.GetDryRun())
	if err != nil {
		return err
	}
	return objects.ToMessage(created, stored)
}

// get reads a job.
func (s *shared) get(ctx context.Context, kind *jobview.Kind, request jobRequest) (client.Object, error) {
	ref, err := jobRef(kind, request)
	if err != nil {
		return nil, err
	}
	return s.service.Get(ctx, ref)
}

// delete deletes a job and returns a message for the client.
func (s *shared) delete(ctx context.Context, kind *jobview.Kind, request changeRequest, gracePeriodSeconds *int64) (string, error) {
	ref := jobservice.JobRef{Kind: kind, Namespace: request.GetNamespace(), Name: request.GetName()}
	recordJob(ctx, ref, request.GetDryRun())
	if _, err := jobRef(kind, request); err != nil {
		return "", err
	}
	if gracePeriodSeconds != nil && *gracePeriodSeconds < 0 {
		return "", invalid("grace_period_seconds", "grace_period_seconds must not be negative")
	}
	if err := s.service.Delete(ctx, ref, jobservice.DeleteOptions{GracePeriodSeconds: gracePeriodSeconds, DryRun: request.GetDryRun()}); err != nil {
		return "", err
	}
	result := " deleted successfully"
	if request.GetDryRun() {
		result = " can be deleted; dry run, nothing was deleted"
	}
	return string(kind.Kind) + " " + ref.Name + result, nil
}

// list converts a page of jobs to messages; newMessage creates an empty one.
func list[Message proto.Message](page *jobwatch.Page, newMessage func() Message) ([]Message, error) {
	messages := make([]Message, len(page.Entries))
	for i := range page.Entries {
		messages[i] = newMessage()
		if err := objects.ToMessage(page.Entries[i].Object, messages[i]); err != nil {
			return nil, err
		}
	}
	return messages, nil
}

// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Kind is one of the two job APIs.
type Kind struct {
	job.Kind
	GVK schema.GroupVersionKind
	// Command and Aliases are the names on the command line, Plural is the resource.
	Command string
	Plural  string
	Aliases []string

	NewObject func() client.Object
	NewList   func() client.ObjectList
}

// The kinds of jobs.
var (
	TrainJobs = &Kind{
		Kind: job.KindTrainJob, GVK: v2alpha1.GroupVersion.WithKind(string(job.KindTrainJob)),
		Command: "trainjob", Plural: "trainjobs", Aliases: []string{"trainjobs", "tj"},
		NewObject: func() client.Object { return &v2alpha1.TrainJob{} }, NewList: func() client.ObjectList { return &v2alpha1.TrainJobList{} },
	}
	MPIJobs = &Kind{
		Kind: job.KindMPIJob, GVK: v2beta1.GroupVersion.WithKind(string(job.KindMPIJob)),
		Command: "mpijob", Plural: "mpijobs", Aliases: []string{"mpijobs", "mj", "mpij"},
		NewObject: func() client.Object { return &v2beta1.MPIJob{} }, NewList: func() client.ObjectList { return &v2beta1.MPIJobList{} },
	}
	Kinds = []*Kind{TrainJobs, MPIJobs}
)

// Resource returns the resource name for kubectl.
func (kind *Kind) Resource() string { return kind.Plural + "." + kind.GVK.Group }

// Get reads one job.
func (kind *Kind) Get(ctx context.Context, reader client.Reader, namespace, name string) (*View, error) {
	object := kind.NewObject()
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(kind.GVK)
	return Of(object), nil
}

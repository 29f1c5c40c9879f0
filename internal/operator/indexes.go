package operator

import (
	"context"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/job"
)

const (
	// eventSubject is the index of events by what they are about.
	eventSubject = "involvedObject.uid"
	// partOf is the index of pods and Jobs by the job whose labels they have.
	partOf = "training.kubeflow.org/job"
)

// Index finds objects in the cache without a look at all of their namespace: with
// thousands of jobs in it, each look at one of them would be a look at all their pods.
type Index struct {
	Object client.Object
	Field  string
	Values client.IndexerFunc
}

// Indexes are those that the reconcilers ask by.
func Indexes() []Index {
	return []Index{
		{&corev1.Event{}, eventSubject, func(object client.Object) []string {
			return []string{string(object.(*corev1.Event).InvolvedObject.UID)}
		}},
		{&corev1.Pod{}, partOf, jobOfPart},
		{&batchv1.Job{}, partOf, jobOfPart},
	}
}

func jobOfPart(object client.Object) []string {
	labels := object.GetLabels()
	return []string{labels[training.LabelJobType] + "/" + labels[training.LabelJobName]}
}

// partsOf asks the cache for what has a job's labels.
func partsOf(made *job.Job) client.ListOption {
	return client.MatchingFields{partOf: made.Kind.Type() + "/" + made.Name}
}

func addIndexes(indexer client.FieldIndexer) error {
	for _, index := range Indexes() {
		if err := indexer.IndexField(context.Background(), index.Object, index.Field, index.Values); err != nil {
			return err
		}
	}
	return nil
}

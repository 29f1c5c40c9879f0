// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// partOf is the index of pods and EndpointSlices by the job whose labels they have.
	partOf = "training.kubeflow.org/job"
	// waitsForQuota is the index of the jobs that wait for a quota.
	waitsForQuota = "status.quotaWait"
)

// Index finds objects in the cache without a scan of their namespace. With thousands of
// jobs, each reconcile would otherwise read the pods of all of them.
type Index struct {
	Object client.Object
	Field  string
	Values client.IndexerFunc
}

// Indexes are the indexes that the reconcilers use.
func Indexes() []Index {
	return []Index{
		{&corev1.Pod{}, partOf, jobOfPart},
		{&discoveryv1.EndpointSlice{}, partOf, jobOfPart},
		{&v2alpha1.TrainJob{}, waitsForQuota, func(object client.Object) []string {
			return ofQuotaWait(&object.(*v2alpha1.TrainJob).Status.Progress)
		}},
		{&v2alpha1.TrainJob{}, usesSnapshot, snapshotOf},
		{&v2beta1.MPIJob{}, waitsForQuota, func(object client.Object) []string {
			return ofQuotaWait(&object.(*v2beta1.MPIJob).Status.Progress)
		}},
	}
}

// isWaiting is the only value of the index waitsForQuota.
const isWaiting = "true"

func ofQuotaWait(progress *training.Progress) []string {
	if progress.QuotaWait == nil {
		return nil
	}
	return []string{isWaiting}
}

func jobOfPart(object client.Object) []string {
	labels := object.GetLabels()
	return []string{labels[training.LabelJobType] + "/" + labels[training.LabelJobName]}
}

// partsOf selects the objects with a job's labels.
func partsOf(j *job.Job) client.ListOption {
	return client.MatchingFields{partOf: j.Kind.Type() + "/" + j.Name}
}

func addIndexes(indexer client.FieldIndexer) error {
	for _, index := range Indexes() {
		if err := indexer.IndexField(context.Background(), index.Object, index.Field, index.Values); err != nil {
			return err
		}
	}
	return nil
}

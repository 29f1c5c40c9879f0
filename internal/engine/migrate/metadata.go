// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// byServer are the fields of metadata that the API server sets.
var byServer = []string{
	"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid",
}

// byOperator are labels and annotations that are set on every job, with the reason to
// drop them.
var byOperator = map[string]string{
	training.LabelJobName:              "the operator sets it",
	training.LabelJobType:              "the operator sets it; a TrainJob has another value",
	training.AnnotationCreatedBy:       "admission sets it to the user who creates the TrainJob",
	corev1.LastAppliedConfigAnnotation: "is kubectl's copy of the MPIJob; kubectl apply adds one of the TrainJob",
	training.LabelJobRole:              "the operator sets it on pods",
	training.LabelReplicaType:          "the operator sets it on pods",
	training.LabelOperatorName:         "is only for objects of an MPIJob",
}

func (m *migration) metadata() {
	old, converted := &m.old.ObjectMeta, &m.trainJob.ObjectMeta
	m.note("apiVersion", Dropped, "", "a TrainJob has its own")
	m.note("kind", Dropped, "", "a TrainJob has its own")
	m.note("status", Dropped, "", "the TrainJob is a new job; it has status.phase, status.conditions and status.workerPodStatuses too")
	converted.Namespace, converted.Name, converted.GenerateName = old.Namespace, old.Name, old.GenerateName
	m.runtime.Namespace, m.runtime.Name = old.Namespace, strings.TrimRight(m.report.Name, "-")
	for _, name := range []string{"namespace", "name", "generateName"} {
		m.note("metadata."+name, Mapped, inTrainJob("metadata."+name), "")
	}
	converted.Labels = m.keep("metadata.labels", old.Labels)
	converted.Annotations = m.keep("metadata.annotations", old.Annotations)
	for _, name := range byServer {
		m.note("metadata."+name, Dropped, "", "the API server sets it")
	}
	m.note("metadata.ownerReferences", Review, "", "the owner created an MPIJob; change it to create the TrainJob, or the TrainJob is not deleted with its owner")
	m.note("metadata.finalizers", Review, "", "the controllers of these finalizers handle the MPIJob; make sure that they handle the TrainJob too")
}

// keep copies labels or annotations, except those that are set on every job.
func (m *migration) keep(path string, values map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if why, ours := byOperator[key]; ours {
			m.note(child(path, key), Dropped, "", why)
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = values[key]
		m.note(child(path, key), Mapped, inTrainJob(child(path, key)), "")
	}
	return kept
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Selector selects everything that belongs to a job. It includes the kind, because a
// job of the other kind may have had the same name.
func Selector(j *job.Job) map[string]string {
	return map[string]string{
		training.LabelJobName: j.Name,
		training.LabelJobType: j.Kind.Type(),
	}
}

// RoleSelector selects the pods of one role.
func RoleSelector(j *job.Job, role string) map[string]string {
	selector := Selector(j)
	selector[training.LabelReplicaType] = role
	return selector
}

// PodLabels are set on every pod of a role, in addition to those of its template.
func PodLabels(j *job.Job, role string) map[string]string {
	labels := RoleSelector(j, role)
	labels[training.LabelJobRole] = role
	labels[training.IstioInject] = "false"
	maps.Copy(labels, j.Kind.Traits().PodLabels)
	return labels
}

// merged is a copy of base with the entries of more.
func merged(base, more map[string]string) map[string]string {
	result := maps.Clone(base)
	if result == nil {
		result = map[string]string{}
	}
	maps.Copy(result, more)
	return result
}

// SPDX-License-Identifier: Apache-2.0

package job

import (
	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// Share is the share of a cluster's MPIJobs that Trireme runs. mpi-operator, which
// serves the same kind, may run the others. TrainJobs are not affected.
type Share string

const (
	// ShareAll: all MPIJobs. mpi-operator must not run.
	ShareAll Share = "All"
	// ShareNew: all that are created from now on. Admission names Trireme in those that
	// name no controller, so that mpi-operator ignores them.
	ShareNew Share = "New"
	// ShareNamed: only those that name Trireme.
	ShareNamed Share = "Named"
)

// Shares are all values of Share.
var Shares = []Share{ShareAll, ShareNew, ShareNamed}

// Runs reports whether Trireme runs an MPIJob. mpi-operator runs every job without
// managedBy, so with any share but All such a job is only ours if we have started it.
func (s Share) Runs(mpiJob *v2beta1.MPIJob) bool {
	switch orElse(mpiJob.Spec.RunPolicy.ManagedBy, "") {
	case training.ManagedByTrireme:
		return true
	case "", v2beta1.ManagedByMPIOperator:
		return StartedByTrireme(mpiJob) || s == ShareAll && !StartedByMPIOperator(mpiJob)
	default:
		return false
	}
}

// Judges reports whether admission validates a new MPIJob. If all jobs are ours, that
// includes those for controllers that do not exist.
func (s Share) Judges(mpiJob *v2beta1.MPIJob) bool { return s == ShareAll || s.Runs(mpiJob) }

// NamesNew reports whether admission names Trireme in a new MPIJob.
func (s Share) NamesNew(mpiJob *v2beta1.MPIJob) bool {
	return s == ShareNew && orElse(mpiJob.Spec.RunPolicy.ManagedBy, "") == ""
}

// NamesStarted reports whether the operator names Trireme in a job that it has started
// when all jobs were ours: otherwise mpi-operator would run the job, too. A job that
// names mpi-operator cannot be changed.
func (s Share) NamesStarted(mpiJob *v2beta1.MPIJob) bool {
	return s != ShareAll && mpiJob.Spec.RunPolicy.ManagedBy == nil && StartedByTrireme(mpiJob)
}

// StartedByTrireme reports whether Trireme wrote the status of an MPIJob. When
// mpi-operator writes it, the phase is lost, because it does not know that field.
func StartedByTrireme(mpiJob *v2beta1.MPIJob) bool { return mpiJob.Status.Phase != "" }

// StartedByMPIOperator reports whether mpi-operator wrote the status of an MPIJob.
func StartedByMPIOperator(mpiJob *v2beta1.MPIJob) bool {
	return mpiJob.Status.Phase == "" && len(mpiJob.Status.Conditions) > 0
}

// IsOfMPIOperator reports whether mpi-operator has started an MPIJob and no other
// controller manages it. This does not depend on the share.
func IsOfMPIOperator(mpiJob *v2beta1.MPIJob) bool {
	return StartedByMPIOperator(mpiJob) && orElse(mpiJob.Spec.RunPolicy.ManagedBy, v2beta1.ManagedByMPIOperator) == v2beta1.ManagedByMPIOperator
}

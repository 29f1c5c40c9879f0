// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// managedByPatch returns the patch that names Trireme in an MPIJob, and whether the job
// is ours then. A job that has the name keeps it when a client sends the manifest that it
// was created from: managedBy is immutable.
func managedByPatch(share job.Share, request *admissionv1.AdmissionRequest) (patch []operation, ours bool, err error) {
	if job.Kind(request.Kind.Kind) != job.KindMPIJob || share == job.ShareAll {
		return nil, true, nil
	}
	object, hasPolicy, err := managementOf(request.Object.Raw)
	if err != nil {
		return nil, false, err
	}
	var old *v2beta1.MPIJob
	isMissing := share.NamesNew(object)
	if request.Operation == admissionv1.Update {
		if old, _, err = managementOf(request.OldObject.Raw); err != nil {
			return nil, false, err
		}
		isMissing = object.Spec.RunPolicy.ManagedBy == nil && old.Spec.RunPolicy.ManagedBy != nil && *old.Spec.RunPolicy.ManagedBy == training.ManagedByTrireme
	}
	switch {
	case !isMissing:
		return nil, isOurs(share, old, object), nil
	case !hasPolicy:
		return []operation{{Op: "add", Path: "/spec/runPolicy", Value: map[string]string{"managedBy": training.ManagedByTrireme}}}, true, nil
	default:
		return []operation{{Op: "add", Path: "/spec/runPolicy/managedBy", Value: training.ManagedByTrireme}}, true, nil
	}
}

// managementOf reads the fields of an MPIJob that say who runs it. hasPolicy reports
// whether it has a runPolicy.
func managementOf(raw []byte) (mpiJob *v2beta1.MPIJob, hasPolicy bool, err error) {
	var read struct {
		Spec struct {
			RunPolicy *struct {
				ManagedBy *string `json:"managedBy"`
			} `json:"runPolicy"`
		} `json:"spec"`
		Status struct {
			Phase      training.Phase         `json:"phase"`
			Conditions []v2beta1.JobCondition `json:"conditions"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &read); err != nil {
		return nil, false, fmt.Errorf("read the runPolicy of an MPIJob: %w", err)
	}
	mpiJob = &v2beta1.MPIJob{}
	mpiJob.Status.Phase, mpiJob.Status.Conditions = read.Status.Phase, read.Status.Conditions
	if read.Spec.RunPolicy != nil {
		mpiJob.Spec.RunPolicy.ManagedBy = read.Spec.RunPolicy.ManagedBy
	}
	return mpiJob, read.Spec.RunPolicy != nil, nil
}

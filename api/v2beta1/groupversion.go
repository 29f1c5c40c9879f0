// SPDX-License-Identifier: Apache-2.0

// Package v2beta1 holds the MPIJob: a launcher and its workers, each as a pod
// template. It has every field of the MPIJob that Kubeflow's mpi-operator
// serves under the same group and version, with the same meaning, and a few
// more. No field has a default in the schema, so that what another operator
// stored reads back unchanged; defaults are applied when a job is made out of
// the object.
//
// +kubebuilder:object:generate=true
// +groupName=kubeflow.org
package v2beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/api/training"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: training.Group, Version: "v2beta1"}

// AddToScheme makes the kinds of this package known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &MPIJob{}, &MPIJobList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

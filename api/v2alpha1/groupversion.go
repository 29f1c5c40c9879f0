// SPDX-License-Identifier: Apache-2.0

// Package v2alpha1 holds the TrainJob and the runtimes that it names. The
// platform team writes runtimes: which MPI, which pods, how they are placed. A
// TrainJob adds what is particular to one training: image, command, number of
// nodes and what each of them needs.
//
// +kubebuilder:object:generate=true
// +groupName=kubeflow.org
package v2alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/api/training"
)

// GroupVersion of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: training.Group, Version: "v2alpha1"}

// AddToScheme makes the kinds of this package known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&TrainJob{}, &TrainJobList{},
		&TrainingRuntime{}, &TrainingRuntimeList{},
		&ClusterTrainingRuntime{}, &ClusterTrainingRuntimeList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

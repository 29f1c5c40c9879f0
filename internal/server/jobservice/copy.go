// SPDX-License-Identifier: Apache-2.0

package jobservice

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// submission returns a job as it is submitted, without the fields that the cluster sets.
func submission(kind *jobview.Kind, from client.Object) client.Object {
	result := kind.NewObject()
	copyInto(from, result)
	result.SetNamespace(from.GetNamespace())
	result.SetName(from.GetName())
	result.SetGenerateName(from.GetGenerateName())
	result.SetFinalizers(from.GetFinalizers())
	result.SetOwnerReferences(from.GetOwnerReferences())
	return result
}

// copyInto copies the user's fields: spec, labels and annotations.
func copyInto(from, to client.Object) {
	switch from := from.(type) {
	case *v2alpha1.TrainJob:
		from.Spec.DeepCopyInto(&to.(*v2alpha1.TrainJob).Spec)
	case *v2beta1.MPIJob:
		from.Spec.DeepCopyInto(&to.(*v2beta1.MPIJob).Spec)
	}
	copied := from.DeepCopyObject().(client.Object)
	to.SetLabels(copied.GetLabels())
	to.SetAnnotations(copied.GetAnnotations())
}

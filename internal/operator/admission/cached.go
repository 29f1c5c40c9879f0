// SPDX-License-Identifier: Apache-2.0

package admission

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// +kubebuilder:rbac:groups="",resources=namespaces;nodes;resourcequotas;limitranges,verbs=get;list;watch
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubeflow.org,resources=mpijobs;trainjobs;trainingruntimes;clustertrainingruntimes,verbs=get;list;watch

// Cached are the kinds that admission reads from the cache, to avoid requests to the API
// server while a job is created.
func Cached() []client.Object {
	return []client.Object{
		&corev1.Namespace{}, &corev1.Node{}, &corev1.ResourceQuota{}, &corev1.LimitRange{}, &schedulingv1.PriorityClass{},
		&v2beta1.MPIJob{}, &v2alpha1.TrainJob{}, &v2alpha1.TrainingRuntime{}, &v2alpha1.ClusterTrainingRuntime{},
	}
}

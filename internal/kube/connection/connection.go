// SPDX-License-Identifier: Apache-2.0

// Package connection creates clients that need no API discovery, for the command line
// and for each caller of the server.
package connection

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// Scheme returns a scheme with every kind that the command line and the server use.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme, metricsv1beta1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// clusterScoped are the used kinds without a namespace.
var clusterScoped = map[string]bool{
	"Node": true, "Namespace": true, "PersistentVolume": true, "StorageClass": true, "PriorityClass": true, "ClusterTrainingRuntime": true,
	"SelfSubjectAccessReview": true, "SelfSubjectReview": true, "CustomResourceDefinition": true,
}

// mapper maps each kind to its resource without discovery, which would take longer than
// most commands.
func mapper(scheme *runtime.Scheme) *meta.DefaultRESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScope(meta.RESTScopeNamespace)
		if clusterScoped[kind.Kind] {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	// The resource of PodMetrics is called pods.
	mapper.AddSpecific(metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"), metricsv1beta1.SchemeGroupVersion.WithResource("pods"),
		metricsv1beta1.SchemeGroupVersion.WithResource("pod"), meta.RESTScopeNamespace)
	return mapper
}

// ClientFactory creates clients that share a scheme and a mapper.
type ClientFactory struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
}

// NewClientFactory also supports other kinds, which are unstructured and namespaced.
func NewClientFactory(others ...schema.GroupVersionKind) *ClientFactory {
	scheme := Scheme()
	kinds := mapper(scheme)
	for _, kind := range others {
		kinds.Add(kind, meta.RESTScopeNamespace)
	}
	return &ClientFactory{scheme: scheme, mapper: kinds}
}

// Client returns a client for typed objects and the other kinds. If httpClient is nil, it
// creates one.
func (m *ClientFactory) Client(config *rest.Config, httpClient *http.Client) (client.WithWatch, error) {
	return client.NewWithWatch(config, client.Options{HTTPClient: httpClient, Scheme: m.scheme, Mapper: m.mapper})
}

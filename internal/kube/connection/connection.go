// Package connection makes clients of the cluster that need not ask it first what it
// serves: the command line's, and those of each of the server's callers.
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

// Scheme knows every kind that the command line and the server read or write.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme, metricsv1beta1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// clusterScoped are the kinds without a namespace, of those that are used.
var clusterScoped = map[string]bool{
	"Node": true, "Namespace": true, "PersistentVolume": true, "StorageClass": true, "PriorityClass": true, "ClusterTrainingRuntime": true,
	"SelfSubjectAccessReview": true, "SelfSubjectReview": true, "CustomResourceDefinition": true,
}

// mapper knows where each kind is served without asking, which would take longer
// than most commands do.
func mapper(scheme *runtime.Scheme) *meta.DefaultRESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range scheme.AllKnownTypes() {
		scope := meta.RESTScope(meta.RESTScopeNamespace)
		if clusterScoped[kind.Kind] {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kind, scope)
	}
	// Its plural is not what the others' are.
	mapper.AddSpecific(metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"), metricsv1beta1.SchemeGroupVersion.WithResource("pods"),
		metricsv1beta1.SchemeGroupVersion.WithResource("pod"), meta.RESTScopeNamespace)
	return mapper
}

// Maker makes clients that share what they know of the kinds.
type Maker struct {
	scheme *runtime.Scheme
	mapper meta.RESTMapper
}

// NewMaker also knows other kinds, which are unstructured and have a namespace.
func NewMaker(others ...schema.GroupVersionKind) *Maker {
	known := Scheme()
	where := mapper(known)
	for _, kind := range others {
		where.Add(kind, meta.RESTScopeNamespace)
	}
	return &Maker{scheme: known, mapper: where}
}

// Client reads and writes typed objects, and those of the other kinds. Without an
// HTTP client it gets one of its own.
func (maker *Maker) Client(config *rest.Config, through *http.Client) (client.WithWatch, error) {
	return client.NewWithWatch(config, client.Options{HTTPClient: through, Scheme: maker.scheme, Mapper: maker.mapper})
}

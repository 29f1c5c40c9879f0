// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
)

// gate is admission's handlers over a cache that knows a full namespace.
type gate struct {
	handlers map[string]http.Handler
	// requests counts what the API server is asked.
	requests atomic.Int64
}

const fullNamespace = "full"

// newGate fills a namespace with jobs and quotas, and waits until the cache has
// all of it.
func newGate(t testing.TB, jobs, quotas int) *gate {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	environment := controlplane.Start(t, &envtest.Environment{CRDDirectoryPaths: []string{filepath.Join(repository, "charts/trireme/crds")}})
	gate := &gate{}
	connection := rest.CopyConfig(environment.Config)
	connection.QPS, connection.Burst = 1000, 1000
	server, err := client.New(connection, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, server, jobs, quotas)

	connection.Wrap(func(inner http.RoundTripper) http.RoundTripper { return &counter{inner, &gate.requests} })
	informers, err := cache.New(connection, cache.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	live, err := client.New(connection, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = informers.Start(t.Context()) }()
	for _, kind := range admission.Cached() {
		if _, err := informers.GetInformer(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
	}
	if !informers.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not fill")
	}
	gate.handlers = admission.Handlers(validation.NewRules(config.Default(), false), job.ShareAll, informers, live, operator.Scheme(), admission.NewAudit(io.Discard), true)
	return gate
}

func fill(t testing.TB, server client.Client, jobs, quotas int) {
	t.Helper()
	ctx := context.Background()
	create := func(object client.Object) {
		if err := server.Create(ctx, object); err != nil {
			t.Error(err)
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fullNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}})
	create(runtime(fullNamespace, "mpi"))
	for i := range quotas {
		create(&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: fullNamespace, Name: fmt.Sprintf("quota-%d", i)},
			Spec:       corev1.ResourceQuotaSpec{Hard: resources("requests.nvidia.com/gpu", "32", "requests.storage", "1Ti", "pods", "10000", "services", "10000")},
		})
	}
	var writers sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() {
			for i := writer; i < jobs; i += 8 {
				create(mpiJob(fullNamespace, fmt.Sprintf("job-%d", i)))
			}
		})
	}
	writers.Wait()
}

// counter counts requests, but not the watches that informers keep open.
type counter struct {
	inner http.RoundTripper
	total *atomic.Int64
}

func (counter *counter) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Query().Get("watch") == "" {
		counter.total.Add(1)
	}
	return counter.inner.RoundTrip(request)
}

// review asks as the API server does.
func (gate *gate) review(t testing.TB, path string, object client.Object, kind string, version string) *admissionv1.AdmissionResponse {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "uid", Operation: admissionv1.Create, Namespace: object.GetNamespace(), Name: object.GetName(),
			Kind: metav1.GroupVersionKind{Group: "kubeflow.org", Version: version, Kind: kind}, Object: k8sruntime.RawExtension{Raw: raw},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	gate.handlers[path].ServeHTTP(answer, request)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	return review.Response
}

func (gate *gate) accepted(t testing.TB) {
	t.Helper()
	for _, answer := range []*admissionv1.AdmissionResponse{
		gate.review(t, "/validate/mpijob", mpiJob(fullNamespace, "new"), "MPIJob", "v2beta1"),
		gate.review(t, "/validate/trainjob", trainJob(fullNamespace, "new"), "TrainJob", "v2alpha1"),
	} {
		if !answer.Allowed {
			t.Fatalf("a good job is refused: %v", answer.Result)
		}
	}
}

// What a good job is judged by comes from the cache, and so does what a job is
// refused for because of a quota.
func TestAdmissionAsksTheAPIServerNothing(t *testing.T) {
	gate := newGate(t, 3, 2)
	before := gate.requests.Load()
	gate.accepted(t)
	tooMany := mpiJob(fullNamespace, "new", func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(20)) })
	if gate.review(t, "/validate/mpijob", tooMany, "MPIJob", "v2beta1").Allowed {
		t.Error("a job that is too large for the quota is accepted")
	}
	if asked := gate.requests.Load() - before; asked > 0 {
		t.Errorf("the API server was asked %d times", asked)
	}
}

// manyVariables makes a job as large as jobs of platforms are.
func manyVariables(job *v2beta1.MPIJob) {
	for i := range 200 {
		worker(job).Env = append(worker(job).Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: "value"})
	}
}

// BenchmarkAdmission judges jobs in a namespace with 1,000 jobs and 20 quotas,
// from the bytes of the request to those of the answer.
func BenchmarkAdmission(b *testing.B) {
	gate := newGate(b, 1000, 20)
	gate.accepted(b)
	tooMany := mpiJob(fullNamespace, "new", manyVariables, func(job *v2beta1.MPIJob) { job.Spec.MPIReplicaSpecs["Worker"].Replicas = new(int32(20)) })
	for _, kind := range []struct {
		name, path, kind, version string
		object                    client.Object
	}{
		{"MPIJob", "/validate/mpijob", "MPIJob", "v2beta1", mpiJob(fullNamespace, "new", manyVariables)},
		{"TrainJob", "/validate/trainjob", "TrainJob", "v2alpha1", trainJob(fullNamespace, "new")},
		{"MPIJob over quota", "/validate/mpijob", "MPIJob", "v2beta1", tooMany},
	} {
		b.Run(kind.name, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				gate.review(b, kind.path, kind.object, kind.kind, kind.version)
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}

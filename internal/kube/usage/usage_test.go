// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
)

// begun is when the pods of the tests were made.
var begun = time.Unix(1_000_000, 0)

func podNamed(name, role string, change ...func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(begun),
		Labels: map[string]string{training.LabelJobName: "train", training.LabelJobType: training.JobTypeMPIJob, training.LabelReplicaType: role},
	}, Spec: corev1.PodSpec{Hostname: name}}
	for _, change := range change {
		change(&pod)
	}
	return pod
}

// later is a pod that was made after others.
func later(pod *corev1.Pod) { pod.CreationTimestamp.Time = begun.Add(time.Minute) }

func somePods() []corev1.Pod {
	return []corev1.Pod{podNamed("train-worker-1", training.RoleWorker), podNamed("train-launcher-a", training.RoleLauncher), podNamed("train-worker-0", training.RoleWorker)}
}

// The launcher is the newest, workers are in their order, and nothing else is there.
func TestPodsAreToldApart(t *testing.T) {
	indexed := func(index string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Labels[training.LabelJobType], pod.Spec.Hostname = training.JobTypeTrainJob, "train-worker-0-"+index
		}
	}
	for name, test := range map[string]struct {
		pods     []corev1.Pod
		launcher string
		workers  map[int32]string
	}{
		"none":       {nil, "", map[int32]string{}},
		"of MPIJobs": {somePods(), "train-launcher-a", map[int32]string{0: "train-worker-0", 1: "train-worker-1"}},
		"of TrainJobs": {[]corev1.Pod{podNamed("x-7", training.RoleWorker, indexed("10")), podNamed("x-8", training.RoleWorker, indexed("2"))}, "",
			map[int32]string{2: "x-8", 10: "x-7"}},
		"restarted": {[]corev1.Pod{podNamed("x-new", training.RoleWorker, indexed("0"), later), podNamed("x-old", training.RoleWorker, indexed("0")),
			podNamed("l-old", training.RoleLauncher), podNamed("l-new", training.RoleLauncher, later)}, "l-new", map[int32]string{0: "x-new"}},
		"others": {[]corev1.Pod{podNamed("train-fetch", training.RoleInitializer), podNamed("stray", training.RoleWorker), podNamed("train-worker-3", "")}, "", map[int32]string{}},
		"of other namespaces": {append(somePods()[1:2], podNamed("train-worker-0", training.RoleWorker, func(pod *corev1.Pod) { pod.Namespace = "other" }),
			podNamed("train-worker-1", training.RoleWorker, func(pod *corev1.Pod) { pod.Namespace = "" })), "train-launcher-a", map[int32]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			report := reportedPodsOf(test.pods).report(SourceNone, nil)
			workers, launcher, last := map[int32]string{}, "", int32(-1)
			for _, worker := range report.Workers {
				if *worker.Index <= last {
					t.Errorf("worker %d comes after %d", *worker.Index, last)
				}
				last, workers[*worker.Index] = *worker.Index, worker.PodName
			}
			if report.Launcher != nil {
				launcher = report.Launcher.PodName
			}
			if diff := cmp.Diff(test.workers, workers); diff != "" || launcher != test.launcher {
				t.Errorf("launcher %q, workers %s", launcher, diff)
			}
		})
	}
}

// Names are quoted: whatever they are, they stay within their quotes.
func TestNamesDoNotBecomeQueries(t *testing.T) {
	evil := podNamed(`a"} or up{x="|.*`, training.RoleLauncher, func(pod *corev1.Pod) { pod.Namespace = `n"} or PODS{` + "\n" + `\` })
	namespace, names := `"n\"} or PODS{\n\\"`, `"a\"\\} or up\\{x=\"\\|\\.\\*"`
	for _, metric := range metrics {
		query := metric.queryFor([]*corev1.Pod{&evil}, time.Minute)
		rest := strings.ReplaceAll(strings.ReplaceAll(query, namespace, "NAMESPACE"), names, "NAMES")
		if strings.Contains(rest, " up") || strings.Contains(rest, "or PODS") || strings.Count(rest, "namespace=NAMESPACE,") != strings.Count(rest, "{") {
			t.Errorf("%s: %s", metric.what, query)
		}
	}
	plain := podNamed("train-worker-0.x", training.RoleWorker)
	other := podNamed("b", training.RoleWorker)
	want := `sum by (pod) (max by (pod, container) (rate(container_cpu_usage_seconds_total{namespace="team",pod=~"train-worker-0\\.x|b",container!="",container!="POD"}[120s])))` +
		` or max by (pod) (rate(container_cpu_usage_seconds_total{namespace="team",pod=~"train-worker-0\\.x|b",container=""}[120s]))`
	if diff := cmp.Diff(want, metrics[0].queryFor([]*corev1.Pod{&plain, &other}, time.Minute)); diff != "" {
		t.Error(diff)
	}
}

func TestRanges(t *testing.T) {
	for window, want := range map[time.Duration]struct {
		step   time.Duration
		points int
	}{
		time.Hour: {30 * time.Second, 120}, 6 * time.Hour: {3 * time.Minute, 120}, 24 * time.Hour: {12 * time.Minute, 120}, 7 * 24 * time.Hour: {84 * time.Minute, 120},
		5 * time.Minute: {15 * time.Second, 20}, 0: {15 * time.Second, 1}, -time.Hour: {15 * time.Second, 1},
	} {
		over := rangeOf(begun, window)
		if points := int(over.End.Sub(over.Start)/over.Step) + 1; over.Step != want.step || points != want.points || !over.End.Equal(begun) {
			t.Errorf("%s: %d points, every %s, until %s", window, points, over.Step, over.End)
		}
	}
}

// faulty is a Prometheus that answers as it is told, by a part of the query.
func faulty(t *testing.T, answers map[string]http.HandlerFunc) *Prometheus {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		for part, answer := range answers {
			if strings.Contains(request.FormValue("query"), part) {
				answer(writer, request)
				return
			}
		}
		says(`{"status":"success","data":{"resultType":"matrix","result":[]}}`)(writer, request)
	}))
	t.Cleanup(server.Close)
	prometheus, err := NewPrometheus(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	prometheus.now = func() time.Time { return begun.Add(time.Minute) }
	return prometheus
}

func says(body string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) { _, _ = writer.Write([]byte(body)) }
}

func fails(code int, body string) http.HandlerFunc {
	return func(writer http.ResponseWriter, _ *http.Request) { http.Error(writer, body, code) }
}

func matrix(series string) http.HandlerFunc {
	return says(`{"status":"success","data":{"resultType":"matrix","result":[` + series + `]}}`)
}

func at(second int64, value float64) Sample {
	return Sample{Timestamp: begun.Add(time.Duration(second) * time.Second).UTC(), Value: value}
}

// What some queries fail with is said, and the rest is there; values that JSON cannot
// carry, other pods and other pods' past are not.
func TestPrometheusInParts(t *testing.T) {
	prometheus := faulty(t, map[string]http.HandlerFunc{
		"cpu_usage":   matrix(`{"metric":{"pod":"train-worker-0"},"values":[[999999,"9"],[1000000,"0.5"],[1000015,"NaN"],[1000030,"+Inf"],[1000045,"-Inf"],[1000060,"1"]]},{"metric":{"pod":"stranger"},"values":[[1000000,"7"]]}`),
		"working_set": fails(http.StatusInternalServerError, "out of order"),
		"transmit":    fails(http.StatusUnprocessableEntity, `{"status":"error","errorType":"execution","error":"too many samples"}`),
		"receive":     says(`{"status":"success","warnings":["a store is away"],"data":{"resultType":"matrix","result":[{"metric":{"pod":"train-launcher-a"},"values":[[1000000,"12"]]}]}}`),
		"GPU_UTIL":    says(`not JSON`),
		"FB_USED":     matrix(`{"metric":{"exported_pod":"train-worker-1","pod":"exporter"},"values":[[1000000,"2"]]}`),
	})
	report, err := prometheus.Of(t.Context(), somePods(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]Sample{"cpu": report.Workers[0].CPU, "gpu memory": report.Workers[1].GPUMemory, "received": report.Launcher.NetworkReceive, "memory": report.Launcher.Memory}
	want := map[string][]Sample{"cpu": {at(0, 0.5), at(60, 1)}, "gpu memory": {at(0, 2<<20)}, "received": {at(0, 12)}, "memory": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, part := range []string{"queries failed", "memory (server_error", "network sent (execution: too many samples)", "GPU (", "Prometheus warns: a store is away"} {
		if !strings.Contains(report.Message, part) {
			t.Errorf("%q does not say %q", report.Message, part)
		}
	}
	written, err := json.Marshal(report)
	if err != nil || strings.Contains(string(written), "null,") && !strings.Contains(string(written), `"index":null`) || strings.Contains(string(written), "stranger") {
		t.Errorf("%v: %s", err, written)
	}
}

func TestPrometheusKnowsNothing(t *testing.T) {
	report, err := faulty(t, nil).Of(t.Context(), somePods(), time.Hour)
	if err != nil || report.Source != SourcePrometheus || !strings.Contains(report.Message, "cadvisor") || len(report.Workers) != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	report, err = faulty(t, nil).Of(t.Context(), nil, time.Hour)
	if err != nil || report.Launcher != nil || !strings.Contains(report.Message, "no pods") {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestAddressesOfPrometheus(t *testing.T) {
	for address, good := range map[string]bool{"http://prometheus:9090": true, "https://h/prefix": true, "prometheus:9090": false, "": false, "ftp://h": false, "http://%zz": false, "http://": false} {
		if _, err := NewPrometheus(address, nil); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := NewPrometheus("ftp://me:hunter2@h", nil); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the password: %v", err)
	}
}

// hanging is a transport whose answers never come.
type hanging struct{}

func (hanging) RoundTrip(request *http.Request) (*http.Response, error) {
	<-request.Context().Done()
	return nil, request.Context().Err()
}

// endless is one whose answers never end.
type endless struct{}

func (endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(rand.Reader)}, nil
}

func TestAnswersAreBounded(t *testing.T) {
	response, err := (&boundedTransport{inner: endless{}, limit: 1000}).RoundTrip(&http.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if read, err := io.ReadAll(response.Body); len(read) != 1000 || err != nil {
		t.Errorf("%d bytes are read, %v", len(read), err)
	}
}

// A Prometheus that hangs: the metrics API answers. Its address is not told to users.
func TestPrometheusHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prometheus, err := NewPrometheus("http://prometheus.internal:9090", &http.Client{Transport: hanging{}})
		if err != nil {
			t.Fatal(err)
		}
		report, err := Choose(prometheus, measuring(nil)).Of(t.Context(), somePods(), time.Hour)
		if err != nil || report.Source != SourceMetricsAPI || !strings.Contains(report.Message, "no answer within 10s") || strings.Contains(report.Message, "prometheus.internal") {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// measuring is a cluster whose metrics API answers, or fails.
func measuring(failure error) client.Reader {
	scheme := runtime.NewScheme()
	_ = metricsv1beta1.AddToScheme(scheme)
	use := func(namespace, pod, job string) *metricsv1beta1.PodMetrics {
		used := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("1Mi")}
		return &metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod, Labels: map[string]string{training.LabelJobName: job, training.LabelJobType: training.JobTypeMPIJob}},
			Timestamp:  metav1.NewTime(begun), Containers: []metricsv1beta1.ContainerMetrics{{Name: "a", Usage: used}, {Name: "b", Usage: used}},
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(use("team", "train-worker-0", "train"), use("other", "train-worker-1", "train"), use("team", "x", "other")).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if failure != nil {
				return failure
			}
			return inner.List(ctx, list, options...)
		}}).Build()
}

func TestMetricsAPI(t *testing.T) {
	report, err := Choose(nil, measuring(nil)).Of(t.Context(), somePods(), time.Hour)
	if err != nil || report.Source != SourceMetricsAPI || report.Message != "" {
		t.Fatalf("%+v, %v", report, err)
	}
	got := [][]Sample{report.Workers[0].CPU, report.Workers[0].Memory, report.Workers[0].GPU, report.Workers[1].CPU, report.Launcher.CPU}
	if diff := cmp.Diff([][]Sample{{at(0, 0.5)}, {at(0, 2<<20)}, {}, {}, {}}, got); diff != "" {
		t.Error(diff)
	}
	report, err = Choose(nil, measuring(nil)).Of(t.Context(), somePods()[1:2], time.Hour)
	if err != nil || report.Launcher == nil {
		t.Errorf("%+v, %v", report, err)
	}
}

// Where nobody measures, the report says what is missing and what to do.
func TestNobodyMeasures(t *testing.T) {
	group := schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}
	broken := faulty(t, map[string]http.HandlerFunc{"": fails(http.StatusBadGateway, "")})
	for name, test := range map[string]struct {
		prometheus *Prometheus
		failure    error
		says       []string
	}{
		"not there":           {nil, apierrors.NewNotFound(group, ""), []string{"no metrics API", "address of a Prometheus", "metrics server"}},
		"not known":           {nil, &meta.NoKindMatchError{}, []string{"no metrics API"}},
		"not allowed":         {nil, apierrors.NewForbidden(group, "", errors.New("no")), []string{"may not read", "pods of metrics.k8s.io"}},
		"not well":            {nil, apierrors.NewServiceUnavailable("later"), []string{"does not answer (later)"}},
		"neither of the both": {broken, apierrors.NewNotFound(group, ""), []string{"Prometheus does not answer (server_error", "no metrics API", "can reach Prometheus"}},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := Choose(test.prometheus, measuring(test.failure)).Of(t.Context(), somePods(), time.Hour)
			if err != nil || report.Source != SourceNone || report.Launcher == nil || len(report.Workers) != 2 {
				t.Fatalf("%+v, %v", report, err)
			}
			for _, part := range test.says {
				if !strings.Contains(report.Message, part) {
					t.Errorf("%q does not say %q", report.Message, part)
				}
			}
		})
	}
}

// A caller who gives up gets no report.
func TestCallersGiveUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if report, err := Choose(faulty(t, nil), measuring(context.Canceled)).Of(ctx, somePods(), time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", report, err)
	}
}

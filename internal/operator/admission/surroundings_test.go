// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
)

// inBrief is the part of an answer that these tests are about: its code, and
// the message of what was wrong.
func inBrief(response *admissionv1.AdmissionResponse) string {
	if response.Allowed {
		return "allowed"
	}
	return fmt.Sprintf("%d %s", response.Result.Code, response.Result.Message)
}

// wantAnswer compares the code and looks for a text in the message.
func wantAnswer(t *testing.T, response *admissionv1.AdmissionResponse, wantCode int32, wantText string) {
	t.Helper()
	code := int32(http.StatusOK)
	if !response.Allowed {
		code = response.Result.Code
	}
	if code != wantCode || !strings.Contains(inBrief(response), wantText) {
		t.Errorf("the answer is %s; want %d and a word of %q", inBrief(response), wantCode, wantText)
	}
}

// Whatever is applied together with a job may reach the cache after the job
// does, so what would cost the job its admission is looked for a second time.
func TestCacheIsBehind(t *testing.T) {
	high := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: "high"}
	})
	onHost := mpiJob(func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).HostNetwork = true })
	enforced := place("pod-security.kubernetes.io/enforce", "baseline")
	type objects = []client.Object
	tests := map[string]struct {
		job         client.Object
		cache, live objects
		wantCode    int32
		want        string
	}{
		"a runtime of the namespace, only live": {job: trainJob(), cache: objects{place()}, live: objects{namespacedRuntime(namespace)}, wantCode: 200},
		"a runtime of the cluster, only live":   {job: trainJob(ofCluster), cache: objects{place()}, live: objects{clusterRuntime()}, wantCode: 200},
		"a runtime that is nowhere":             {job: trainJob(), cache: objects{place()}, wantCode: 422, want: "spec.runtimeRef.name: Invalid value: \"openmpi\": Runtime openmpi not found in namespace"},
		"a runtime of another namespace":        {job: trainJob(), cache: objects{place(), namespacedRuntime("team-b")}, live: objects{namespacedRuntime("team-b")}, wantCode: 422, want: "Runtime openmpi not found"},
		"a runtime of the other scope": {
			job: trainJob(), cache: objects{place(), clusterRuntime()}, live: objects{clusterRuntime()}, wantCode: 422, want: "Runtime openmpi not found",
		},
		"a runtime of the other scope, the other way round": {
			job: trainJob(ofCluster), cache: objects{place(), namespacedRuntime(namespace)}, live: objects{namespacedRuntime(namespace)}, wantCode: 422, want: "Runtime openmpi not found",
		},

		"a priority class, only live":      {job: high, cache: objects{place()}, live: objects{priorityClass("high")}, wantCode: 200},
		"a priority class that is nowhere": {job: high, cache: objects{place(), priorityClass("low")}, live: objects{priorityClass("low")}, wantCode: 422, want: "PriorityClass does not exist"},

		"a namespace, only live":      {job: onHost, live: objects{enforced}, wantCode: 422, want: `worker pods violate PodSecurity "baseline:latest" of the namespace`},
		"a namespace that is nowhere": {job: onHost, wantCode: 200},
		"a namespace in the cache": {
			job: onHost, cache: objects{enforced}, live: objects{place()}, wantCode: 422, want: `worker pods violate PodSecurity "baseline:latest" of the namespace`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantAnswer(t, create(t, holding(tc.cache...), holding(tc.live...), tc.job), tc.wantCode, tc.want)
		})
	}
}

// A job whose surroundings the cache has costs no request to the API server.
func TestCacheIsEnough(t *testing.T) {
	cache := holding(place(), namespacedRuntime(namespace), priorityClass("high"), quotaOf("pods", "9"))
	for name, job := range map[string]client.Object{
		"TrainJob": trainJob(),
		"MPIJob": mpiJob(func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: "high"}
		}),
	} {
		t.Run(name, func(t *testing.T) { wantAnswer(t, create(t, cache, untouched(t), job), 200, "") })
	}
}

// What cannot be read is either asked for again, by whoever gets the 500, or
// left to Kubernetes, which will look itself.
func TestReadingFails(t *testing.T) {
	everything := []client.Object{place(), namespacedRuntime(namespace), clusterRuntime(), priorityClass("high")}
	high := func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: "high"}
	}
	tests := map[string]struct {
		job                   client.Object
		cacheFails, liveFails client.Object
		cacheListFails        client.ObjectList
		cacheLacks            bool
		wantCode              int32
		want                  string
	}{
		"the runtime, live":                  {job: trainJob(), cacheLacks: true, liveFails: &v2alpha1.TrainingRuntime{}, wantCode: 500, want: "read *v2alpha1.TrainingRuntime openmpi: the API server is down"},
		"the runtime of the cluster, live":   {job: trainJob(ofCluster), cacheLacks: true, liveFails: &v2alpha1.ClusterTrainingRuntime{}, wantCode: 500, want: "read *v2alpha1.ClusterTrainingRuntime openmpi: the API server is down"},
		"the runtime, in the cache":          {job: trainJob(), cacheFails: &v2alpha1.TrainingRuntime{}, wantCode: 500, want: "read *v2alpha1.TrainingRuntime openmpi: the API server is down"},
		"the namespace, live":                {job: mpiJob(), cacheLacks: true, liveFails: &corev1.Namespace{}, wantCode: 500, want: "read *v1.Namespace team-a: the API server is down"},
		"the namespace, in the cache":        {job: trainJob(), cacheFails: &corev1.Namespace{}, wantCode: 500, want: "read *v1.Namespace team-a: the API server is down"},
		"a TrainJob of the same name":        {job: mpiJob(), cacheFails: &v2alpha1.TrainJob{}, wantCode: 500, want: "look for TrainJob of the same name: the API server is down"},
		"an MPIJob of the same name":         {job: trainJob(), cacheFails: &v2beta1.MPIJob{}, wantCode: 500, want: "look for MPIJob of the same name: the API server is down"},
		"quotas":                             {job: mpiJob(), cacheListFails: &corev1.ResourceQuotaList{}, wantCode: 500, want: "read *v1.ResourceQuotaList: the API server is down"},
		"limit ranges":                       {job: trainJob(), cacheListFails: &corev1.LimitRangeList{}, wantCode: 500, want: "read *v1.LimitRangeList: the API server is down"},
		"all priority classes":               {job: mpiJob(), cacheListFails: &schedulingv1.PriorityClassList{}, wantCode: 500, want: "read *v1.PriorityClassList: the API server is down"},
		"the priority class, live":           {job: mpiJob(high), cacheLacks: true, liveFails: &schedulingv1.PriorityClass{}, wantCode: 200},
		"the priority class, in the cache":   {job: mpiJob(high), cacheFails: &schedulingv1.PriorityClass{}, wantCode: 200},
		"nodes":                              {job: mpiJob(), cacheListFails: &corev1.NodeList{}, wantCode: 200},
		"nothing, and the job is all right":  {job: mpiJob(high), wantCode: 200},
		"nothing, and the runtime is needed": {job: trainJob(), wantCode: 200},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cache, live := holding(everything...), holding(everything...)
			if tc.cacheLacks {
				cache = holding()
			}
			if tc.cacheFails != nil {
				cache = failing(cache, tc.cacheFails)
			}
			if tc.cacheListFails != nil {
				cache = failing(cache, tc.cacheListFails)
			}
			if tc.liveFails != nil {
				live = failing(live, tc.liveFails)
			}
			wantAnswer(t, create(t, cache, live, tc.job), tc.wantCode, tc.want)
		})
	}
}

// Only jobs that have pods now are counted, of both kinds and of one namespace.
func TestRunningJobs(t *testing.T) {
	count := 0
	named := func(meta *metav1.ObjectMeta) {
		count++
		meta.Name = fmt.Sprintf("job-%d", count)
	}
	mpi := func(phase training.Phase, suspend *bool, options ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
		job := mpiJob(options...)
		named(&job.ObjectMeta)
		job.Status.Phase, job.Spec.RunPolicy.Suspend = phase, suspend
		return job
	}
	train := func(phase training.Phase, suspend *bool) *v2alpha1.TrainJob {
		job := trainJob()
		named(&job.ObjectMeta)
		job.Status.Phase, job.Spec.Suspend = phase, suspend
		return job
	}
	elsewhere := func(mpiJob *v2beta1.MPIJob) { mpiJob.Namespace = "team-b" }
	type objects = []client.Object
	tests := map[string]struct {
		jobs  objects
		fails client.ObjectList
		want  string
	}{
		"none":                        {want: "0 running jobs"},
		"one of each":                 {jobs: objects{mpi(training.PhaseRunning, nil), train(training.PhaseRunning, nil)}, want: "2 running jobs"},
		"not suspended, so they say":  {jobs: objects{mpi(training.PhaseRunning, new(false)), train(training.PhaseRunning, new(false))}, want: "2 running jobs"},
		"suspended a moment ago":      {jobs: objects{mpi(training.PhaseRunning, new(true)), train(training.PhaseRunning, new(true))}, want: "0 running jobs"},
		"MPIJobs of every phase":      {jobs: objects{mpi("", nil), mpi(training.PhasePending, nil), mpi(training.PhaseRunning, nil), mpi(training.PhaseSucceeded, nil), mpi(training.PhaseFailed, nil)}, want: "1 running job)"},
		"TrainJobs of every phase":    {jobs: objects{train("", nil), train(training.PhasePending, nil), train(training.PhaseRunning, nil), train(training.PhaseSucceeded, nil), train(training.PhaseFailed, nil)}, want: "1 running job)"},
		"of another namespace":        {jobs: objects{mpi(training.PhaseRunning, nil, elsewhere)}, want: "0 running jobs"},
		"MPIJobs that are unreadable": {jobs: objects{mpi(training.PhaseRunning, nil), train(training.PhaseRunning, nil), train(training.PhaseRunning, nil)}, fails: &v2beta1.MPIJobList{}, want: "2 running jobs"},
		"TrainJobs that are not":      {jobs: objects{mpi(training.PhaseRunning, nil), train(training.PhaseRunning, nil), train(training.PhaseRunning, nil)}, fails: &v2alpha1.TrainJobList{}, want: "1 running job)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cache := holding(append(tc.jobs, place(), quotaOf("pods", "0"))...)
			if tc.fails != nil {
				cache = failing(cache, tc.fails)
			}
			wantAnswer(t, create(t, cache, holding(), mpiJob()), 422, "Current usage: 0 pods ("+tc.want)
		})
	}
}

func TestWhatTheNamespaceHas(t *testing.T) {
	elsewhere := quotaOf("pods", "0")
	elsewhere.Namespace = "team-b"
	small := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: list("cpu", "500m"), Default: list("cpu", "500m")}},
	}}
	everyday := quotaOf("pods", "2")
	everyday.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"everyday"}},
	}}
	isDefault := func(class *schedulingv1.PriorityClass) { class.GlobalDefault = true }
	sameName := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Name = "resnet" })
	sameNameElsewhere := sameName.DeepCopy()
	sameNameElsewhere.Namespace = "team-b"
	type objects = []client.Object
	tests := map[string]struct {
		cache    objects
		wantCode int32
		want     string
	}{
		"a quota":                                     {cache: objects{quotaOf("pods", "2")}, wantCode: 422, want: "Requested 3 pods"},
		"a quota of another namespace":                {cache: objects{elsewhere}, wantCode: 200},
		"a limit range":                               {cache: objects{small}, wantCode: 422, want: "at most 500m is allowed (LimitRange small)"},
		"a quota of a class that nobody named":        {cache: objects{everyday, priorityClass("everyday")}, wantCode: 200},
		"a quota of the class of those who name none": {cache: objects{everyday, priorityClass("everyday", isDefault), priorityClass("zero")}, wantCode: 422, want: "Requested 3 pods"},
		"a TrainJob of that name":                     {cache: objects{sameName}, wantCode: 422, want: "a TrainJob of this name already exists in the namespace"},
		"a TrainJob of that name elsewhere":           {cache: objects{sameNameElsewhere}, wantCode: 200},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantAnswer(t, create(t, holding(append(tc.cache, place())...), holding(), mpiJob()), tc.wantCode, tc.want)
		})
	}
}

// Clients tell a quota by the type of the cause.
func TestQuotaRefusalIsTyped(t *testing.T) {
	response := create(t, holding(place(), quotaOf("pods", "2")), holding(), mpiJob())
	causes := response.Result.Details.Causes
	if len(causes) != 1 || causes[0].Type != quota.CauseExceeded || !quota.IsExceeded(*response.Result) {
		t.Errorf("the causes are %+v", causes)
	}
}

func TestWhatTheNodesHave(t *testing.T) {
	const nowhere = "spec.mpiReplicaSpecs.Worker.template.spec.containers[0].resources: no node of this cluster has amd.com/gpu now; the job waits until a node has it"
	node := func(name string, amounts ...string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: list(amounts...), Capacity: list("amd.com/gpu", "8")}}
	}
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		workerOf(mpiJob).Containers[0].Resources = limits("cpu", "1", "memory", "1Gi", "amd.com/gpu", "1")
	})
	type objects = []client.Object
	tests := map[string]struct {
		nodes objects
		fails bool
		want  []string
	}{
		"no nodes":               {want: []string{nowhere}},
		"others":                 {nodes: objects{node("a", "cpu", "8"), node("b", "nvidia.com/gpu", "8")}, want: []string{nowhere}},
		"one whose GPUs are off": {nodes: objects{node("a", "amd.com/gpu", "0")}, want: []string{nowhere}},
		"one that has":           {nodes: objects{node("a", "cpu", "8"), node("b", "amd.com/gpu", "1")}},
		"nodes that are hidden":  {fails: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cache := holding(append(tc.nodes, place())...)
			if tc.fails {
				cache = failing(cache, &corev1.NodeList{})
			}
			response := create(t, cache, holding(), job)
			if diff := cmp.Diff(tc.want, response.Warnings); diff != "" || !response.Allowed {
				t.Errorf("%s; warnings (-want +got):\n%s", inBrief(response), diff)
			}
		})
	}
}

// The operator has informers for Cached and for nothing else: to read another
// kind would start one, and a job would wait for it.
func TestEveryKindThatIsReadIsCached(t *testing.T) {
	var want, got []string
	for _, object := range Cached() {
		want = append(want, kindOf(object))
	}
	read := func(object runtime.Object) {
		if kind := strings.TrimSuffix(kindOf(object), "List"); !slices.Contains(got, kind) {
			got = append(got, kind)
		}
	}
	cache := interceptor.NewClient(holding(place(), quotaOf("pods", "0")), interceptor.Funcs{
		Get: func(ctx context.Context, reader client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			read(object)
			return reader.Get(ctx, key, object, options...)
		},
		List: func(ctx context.Context, reader client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			read(list)
			return reader.List(ctx, list, options...)
		},
	})
	live := holding(namespacedRuntime(namespace), clusterRuntime())
	for _, job := range []client.Object{trainJob(), trainJob(ofCluster), mpiJob(func(mpiJob *v2beta1.MPIJob) {
		workerOf(mpiJob).Containers[0].Resources = limits("nvidia.com/gpu", "1")
	})} {
		create(t, cache, live, job)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kinds (-cached +read):\n%s", diff)
	}
}

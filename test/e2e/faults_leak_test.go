// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

const (
	leastBatches, largestBatch = 4, 250
	// forAMoment is a launcher that is over as soon as it has begun.
	forAMoment = time.Second
	// goroutinesOfChance come and go: connections, timers, a watch that is made anew.
	goroutinesOfChance = 15
	// heapOfChance is what the heap may grow by with 1,000 jobs.
	heapOfChance = 2 << 20
	// heapOfEvents is what it may grow by with 1,000 jobs for a while, twice the 4 to 8 MiB
	// that were seen: client-go keeps each event for six to twelve minutes, to count how
	// often it repeats. After 2,000 jobs and a minute and a half of rest 1 MiB was left for
	// 1,000 of them.
	heapOfEvents = 16 << 20
	// untilEventsAreForgotten is the longest that client-go keeps one, and a little.
	untilEventsAreForgotten = 13 * time.Minute
)

// leakJobs is how many jobs go through the operator: few by default, many if somebody
// has the time. Then there is also time to wait until events are forgotten.
func leakJobs() (jobs int, patient bool) {
	if asked, err := strconv.Atoi(os.Getenv("LEAK_JOBS")); err == nil {
		return asked, true
	}
	return 240, false
}

// Nothing of a job stays in the operator when the job is gone: neither in the one that
// leads nor in the one that waits.
func TestNothingStaysOfJobsThatAreGone(t *testing.T) {
	if !isThorough() {
		t.Skip("it takes minutes: make test-all runs it")
	}
	simulateNodes(t, 20)
	crowd := newCrowd(t, forAMoment, forever)
	reader := newMetricsReader(t)
	pods := operatorPods(t)
	jobs, patient := leakJobs()
	batches := max(leastBatches, jobs/largestBatch)
	size := jobs / batches
	samples := map[string][]sample{}
	for batch := range batches + 1 {
		// The first batch fills caches, pools and connections: what it leaves is no leak.
		begin := time.Now()
		crowd.comeAndGo(batch, size)
		t.Logf("%d jobs have come and gone within %s", size, time.Since(begin).Round(time.Second))
		for _, pod := range pods {
			samples[pod.Name] = append(samples[pod.Name], reader.settled(crowd, pod, batch*size))
		}
	}
	for _, pod := range pods {
		wantLevel(t, pod.Name, samples[pod.Name], heapOfEvents+heapOfChance)
	}
	if patient && !t.Failed() {
		wantLevelAtRest(t, reader, crowd, pods, samples)
	}
}

// wantLevelAtRest gives events the time to be forgotten, and fails if anything else is
// not.
func wantLevelAtRest(t *testing.T, reader *metricsReader, crowd *crowd, pods []corev1.Pod, samples map[string][]sample) {
	t.Helper()
	begin := time.Now()
	for _, pod := range pods {
		first := samples[pod.Name][0]
		for {
			now := reader.settled(crowd, pod, samples[pod.Name][len(samples[pod.Name])-1].jobs)
			growth := float64(now.heap-first.heap) * 1000 / float64(now.jobs)
			if growth <= heapOfChance || time.Since(begin) > untilEventsAreForgotten {
				t.Logf("%s at rest, after %s: %+.2f MiB for 1,000 jobs", pod.Name, time.Since(begin).Round(time.Second), growth/(1<<20))
				wantLevel(t, pod.Name, []sample{first, now}, heapOfChance)
				break
			}
			time.Sleep(20 * time.Second)
		}
	}
}

// sample is what an operator holds.
type sample struct {
	jobs, goroutines, waiting int
	// heap is what the last collection of garbage found alive.
	heap int
}

// wantLevel fails if an operator holds more the more jobs have gone.
func wantLevel(t *testing.T, name string, samples []sample, mostHeap float64) {
	t.Helper()
	first, last := samples[0], samples[len(samples)-1]
	heap := slope(samples, func(one sample) int { return one.heap })
	goroutines := slope(samples, func(one sample) int { return one.goroutines })
	t.Logf("%s: %+.2f MiB and %+.1f goroutines for 1,000 jobs", name, heap/(1<<20), goroutines)
	if last.goroutines > first.goroutines+goroutinesOfChance {
		t.Errorf("%s has %d goroutines after %d jobs, and had %d", name, last.goroutines, last.jobs, first.goroutines)
	}
	if heap > mostHeap {
		t.Errorf("%s keeps %.2f MiB of 1,000 jobs that are gone", name, heap/(1<<20))
	}
	if last.waiting > first.waiting+goroutinesOfChance {
		t.Errorf("%s has %d jobs to look at, and there is none", name, last.waiting)
	}
}

// slope is by how much something grows with 1,000 jobs, by least squares.
func slope(samples []sample, of func(sample) int) float64 {
	var meanX, meanY, above, below float64
	for _, one := range samples {
		meanX += float64(one.jobs) / float64(len(samples))
		meanY += float64(of(one)) / float64(len(samples))
	}
	for _, one := range samples {
		x := float64(one.jobs) - meanX
		above += x * (float64(of(one)) - meanY)
		below += x * x
	}
	return 1000 * above / below
}

// comeAndGo has jobs of both kinds come to their end, but for each fifth, which is
// deleted while it runs; and deletes them all.
func (crowd *crowd) comeAndGo(batch, size int) {
	crowd.t.Helper()
	jobs := make([]client.Object, size)
	for i := range jobs {
		run := forAMoment
		if i%5 == 0 {
			run = forever
		}
		name := fmt.Sprintf("batch-%d-%d", batch, i)
		if i%2 == 0 {
			jobs[i] = simulatedMPIJob(name, 2, run, small())
		} else {
			jobs[i] = simulatedTrainJob(name, 2, run, small())
		}
	}
	crowd.submitAll(jobs)
	crowd.until("the jobs end, or run", 5*time.Minute, func() error {
		open := 0
		err := crowd.each(func(job client.Object) {
			if progress := progressOf(job); !isFinished(progress) && progress.Phase != "Running" {
				open++
			}
		})
		if err == nil && open > 0 {
			err = fmt.Errorf("%d have not", open)
		}
		return err
	})
	crowd.clear()
}

// clear deletes all jobs, and waits until nothing is left of them.
func (crowd *crowd) clear() {
	crowd.t.Helper()
	for _, kind := range []client.Object{jobOfKind("MPIJob"), jobOfKind("TrainJob")} {
		if err := crowd.client.DeleteAllOf(context.Background(), kind, client.InNamespace(crowd.namespace), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			crowd.t.Fatal(err)
		}
	}
	crowd.until("nothing is left of the jobs", 5*time.Minute, func() error {
		var pods corev1.PodList
		left := 0
		if err := crowd.each(func(client.Object) { left++ }); err != nil {
			return err
		}
		if err := crowd.client.List(context.Background(), &pods, client.InNamespace(crowd.namespace)); err != nil {
			return err
		}
		if left+len(pods.Items) > 0 {
			return fmt.Errorf("there are %d jobs and %d pods", left, len(pods.Items))
		}
		return nil
	})
}

func jobOfKind(kind string) client.Object {
	return both(2, allreduce)[kind]
}

func operatorPods(t *testing.T) []corev1.Pod {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	var list corev1.PodList
	if err := api.List(t.Context(), &list, client.InNamespace("trireme-system"), client.MatchingLabels{"app.kubernetes.io/component": "operator"}); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		t.Fatal("no operator runs")
	}
	return list.Items
}

// metricsReader reads the operator's metrics as a Prometheus does.
type metricsReader struct {
	t      *testing.T
	client http.Client
	token  string
}

func newMetricsReader(t *testing.T) *metricsReader {
	t.Helper()
	api, namespace := newNamespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prometheus"}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-" + namespace}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trireme-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}},
	}
	for _, object := range []client.Object{account, binding} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), binding) })
	token := &authenticationv1.TokenRequest{}
	if err := api.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	trust := trusting(t, authorityFile(t))
	trust.ServerName = webhookName
	return &metricsReader{
		t: t, token: token.Status.Token,
		// A connection is closed with its answer, or it would count as a goroutine.
		client: http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: trust}},
	}
}

// read sums each metric of an operator over its labels.
func (reader *metricsReader) read(pod corev1.Pod) map[string]float64 {
	reader.t.Helper()
	request, err := http.NewRequestWithContext(reader.t.Context(), http.MethodGet, fmt.Sprintf("https://%s:8443/metrics", pod.Status.PodIP), nil)
	if err != nil {
		reader.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+reader.token)
	answer, err := reader.client.Do(request)
	if err != nil {
		reader.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		reader.t.Fatalf("metrics of %s: %s %v", pod.Name, answer.Status, err)
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ = strings.Cut(name, "{")
		if number, err := strconv.ParseFloat(value[strings.LastIndex(value, " ")+1:], 64); err == nil {
			found[name] += number
		}
	}
	return found
}

// settled is what an operator holds when garbage has been collected twice: what was
// alive when the first collection began may not be by then.
func (reader *metricsReader) settled(crowd *crowd, pod corev1.Pod, jobs int) sample {
	reader.t.Helper()
	const collections = "go_gc_cycles_total_gc_cycles_total"
	begin := reader.read(pod)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		now := reader.read(pod)
		if now[collections] >= begin[collections]+2 {
			found := sample{jobs: jobs, goroutines: int(now["go_goroutines"]), heap: int(now["go_gc_heap_live_bytes"]), waiting: int(now["workqueue_depth"])}
			reader.t.Logf("%s after %d jobs: %d goroutines, %.2f MiB alive, %d to look at", pod.Name, jobs, found.goroutines, float64(found.heap)/(1<<20), found.waiting)
			return found
		}
		crowd.makeGarbage()
	}
	reader.t.Fatalf("%s collects no garbage", pod.Name)
	return sample{}
}

// makeGarbage has admission judge jobs that nobody stores, until it must clear up.
func (crowd *crowd) makeGarbage() {
	crowd.t.Helper()
	jobs := make([]client.Object, 64)
	for i := range jobs {
		if jobs[i] = jobOfKind("MPIJob"); i%2 == 0 {
			trainJob := jobOfKind("TrainJob").(*v2alpha1.TrainJob)
			trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: runtimeName(forAMoment)}
			jobs[i] = trainJob
		}
		jobs[i].SetNamespace(crowd.namespace)
		jobs[i].SetName("garbage")
	}
	crowd.inParallel(jobs, func(job client.Object) error { return crowd.client.Create(context.Background(), job, client.DryRunAll) })
}

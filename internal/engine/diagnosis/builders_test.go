// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/nodes"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

var kinds = []job.Kind{job.KindTrainJob, job.KindMPIJob}

// When things happen to the jobs of these tests, in seconds.
const (
	submitted = 0
	created   = 1
	scheduled = 2
	ready     = 5
	present   = 60
)

func at(second float64) time.Time {
	return time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
}

func stamp(second float64) metav1.Time { return metav1.Time{Time: at(second)} }

// timeouts is that of the default configuration.
var timeouts = Timeouts{Image: 5 * time.Minute, Quota: time.Minute, Restart: 10 * time.Second}

// scene is a job, its stored object, and its observed state.
type scene struct {
	t        testing.TB
	job      *job.Job
	observed Observed
	trainJob v2alpha1.TrainJob
	mpiJob   v2beta1.MPIJob
	// freeNodes, unfitNodes and scalesUp are the result of a lookup of nodes.
	freeNodes  int
	unfitNodes map[nodes.Reason]int
	scalesUp   bool
	// lookups are those that the last verdict needed.
	lookups []Lookup
	// start is the number of the restart that new pods are created for.
	start int32
}

type option func(*scene)

// newScene is a job that was just submitted and has no pods.
func newScene(t testing.TB, kind job.Kind, workers int32, options ...option) *scene {
	template := func(memory string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/train:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}},
		}}}}
	}
	scene := &scene{t: t, job: &job.Job{
		Kind: kind, Namespace: "team", Name: "train", UID: "b7", Slots: 2,
		Launcher: job.Role{Replicas: 1, Template: template("1Gi")}, Worker: job.Role{Replicas: workers, Template: template("4Gi")},
		Gang: job.Gang{MinMember: workers + 1, TimeoutSeconds: 300},
	}}
	scene.observed = Observed{Now: at(present), Timeouts: timeouts, GangMessage: "The scheduler schedules them one by one."}
	scene.trainJob.CreationTimestamp, scene.mpiJob.CreationTimestamp = stamp(submitted), stamp(submitted)
	for _, option := range options {
		option(scene)
	}
	return scene
}

// runningScene is a running job of two workers.
func runningScene(t testing.TB, kind job.Kind, options ...option) *scene {
	return startedScene(t, kind, runs, options...)
}

// startedScene is a job of two workers whose pods are all in the same state.
func startedScene(t testing.TB, kind job.Kind, state podOption, options ...option) *scene {
	scene := newScene(t, kind, 2, options...)
	scene.addPods(state)
	scene.storeVerdict()
	return scene
}

func (sc *scene) addPods(state podOption) {
	sc.observed.Workload.Exists = true
	sc.observed.Launchers = []*corev1.Pod{sc.newPod(training.RoleLauncher, 0, state)}
	sc.observed.Workers = nil
	for index := range sc.job.Worker.Replicas {
		sc.observed.Workers = append(sc.observed.Workers, sc.newPod(training.RoleWorker, index, state))
	}
}

// podName is the name of a pod of the current start.
func (sc *scene) podName(role string, index int32) string {
	return plan.PodName(sc.job, role, index, sc.start)
}

// expand puts the names of pods into a text: {launcher}, {worker 1}, {initializer}.
func (sc *scene) expand(text string) string {
	text = strings.ReplaceAll(text, "{launcher}", sc.podName(training.RoleLauncher, 0))
	text = strings.ReplaceAll(text, "{initializer}", sc.podName(training.RoleInitializer, 0))
	for index := range int32(5) {
		text = strings.ReplaceAll(text, fmt.Sprintf("{worker %d}", index), sc.podName(training.RoleWorker, index))
	}
	return text
}

// newPod is a pod that was just created.
func (sc *scene) newPod(role string, index int32, options ...podOption) *corev1.Pod {
	template := sc.job.Worker.Template
	if role == training.RoleLauncher {
		template = sc.job.Launcher.Template
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: sc.podName(role, index), UID: types.UID(sc.podName(role, index)), CreationTimestamp: stamp(created),
			Labels: plan.RoleSelector(sc.job, role),
		},
		Spec:   *template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if role == training.RoleInitializer {
		pod.Spec.Containers[0].Name, pod.Spec.RestartPolicy = "dataset", corev1.RestartPolicyOnFailure
	}
	pod.Labels[training.LabelRestart] = strconv.Itoa(int(sc.start))
	switch role {
	case training.RoleLauncher:
		pod.Spec.Hostname = plan.NamesOf(sc.job).LauncherHost
	case training.RoleWorker:
		pod.Spec.Hostname = plan.WorkerHost(sc.job, index)
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func (sc *scene) launcher(options ...podOption) *corev1.Pod {
	return change(sc.observed.Launchers[len(sc.observed.Launchers)-1], options)
}

func (sc *scene) worker(index int, options ...podOption) *corev1.Pod {
	return change(sc.observed.Workers[index], options)
}

// everyPod changes all pods of launcher and workers.
func (sc *scene) everyPod(options ...podOption) {
	for _, pods := range [][]*corev1.Pod{sc.observed.Launchers, sc.observed.Workers} {
		for _, pod := range pods {
			change(pod, options)
		}
	}
}

func change(pod *corev1.Pod, options []podOption) *corev1.Pod {
	for _, option := range options {
		option(pod)
	}
	return pod
}

// previous is the status of the stored object.
func (sc *scene) previous() Previous {
	if sc.job.Kind == job.KindMPIJob {
		return FromMPIJob(&sc.mpiJob)
	}
	return FromTrainJob(&sc.trainJob)
}

// verdict is the verdict after all lookups that it needs, as in the operator.
func (sc *scene) verdict() Verdict {
	sc.t.Helper()
	sc.lookups = nil
	for range 4 {
		verdict := Of(sc.job, sc.previous(), sc.observed)
		switch verdict.Lookup {
		case LookupNothing:
			return verdict
		case LookupConfirmation:
			sc.observed.Confirmed = true
		case LookupNodes:
			if sc.scalesUp && !sc.observed.ScaleUp {
				sc.observed.ScaleUp = true
			} else {
				sc.observed.FreeNodes = &NodeCount{Fitting: sc.freeNodes, Checked: sc.freeNodes, Free: sc.freeNodes, Unfit: sc.unfitNodes}
			}
		}
		sc.lookups = append(sc.lookups, verdict.Lookup)
	}
	sc.t.Fatalf("too many lookups: %v", sc.lookups)
	return Verdict{}
}

// storeVerdict stores the verdict in the object's status.
func (sc *scene) storeVerdict() Verdict {
	sc.t.Helper()
	verdict := sc.verdict()
	sc.store(&verdict)
	return verdict
}

func (sc *scene) store(verdict *Verdict) {
	now := metav1.Time{Time: sc.observed.Now}
	if sc.job.Kind == job.KindMPIJob {
		verdict.MPIJobStatus(sc.job, &sc.mpiJob.Status, 1, now)
		sc.mpiJob = stored(sc.t, sc.mpiJob)
		return
	}
	verdict.TrainJobStatus(sc.job, &sc.trainJob.Status, 1, now)
	sc.trainJob = stored(sc.t, sc.trainJob)
}

// stored is an object as the API server stores it: times have seconds only.
func stored[T any](t testing.TB, object T) (read T) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("the status cannot be written: %v", err)
	}
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatalf("the status cannot be read: %v", err)
	}
	return read
}

// setTime sets the clock, and drops the results of lookups.
func (sc *scene) setTime(second float64) {
	sc.observed.Now, sc.observed.Confirmed, sc.observed.FreeNodes, sc.observed.ScaleUp = at(second), false, nil, false
}

// condition is one of the object's conditions as text: status, reason, message.
func (sc *scene) condition(kind string) string {
	if sc.job.Kind == job.KindMPIJob {
		for _, condition := range sc.mpiJob.Status.Conditions {
			if string(condition.Type) == kind {
				return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
			}
		}
		return ""
	}
	for _, condition := range sc.trainJob.Status.Conditions {
		if condition.Type == kind {
			return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
		}
	}
	return ""
}

func backoffLimit(limit int32) option {
	return func(scene *scene) { scene.job.Lifetime.BackoffLimit = limit }
}

func deadline(seconds int64) option {
	return func(scene *scene) { scene.job.Lifetime.ActiveDeadlineSeconds = &seconds }
}

func ttl(seconds int32) option {
	return func(scene *scene) { scene.job.Lifetime.TTLSecondsAfterFinished = &seconds }
}

func withInitializer(scene *scene) {
	scene.job.Initializer = &job.Initializer{Dataset: &job.Source{URI: "s3://data/set"}, ClaimName: "data"}
}

// restartPolicies sets the restart policies of launcher and workers.
func restartPolicies(launcher, worker corev1.RestartPolicy) option {
	return func(scene *scene) {
		scene.job.Launcher.Template.Spec.RestartPolicy, scene.job.Worker.Template.Spec.RestartPolicy = launcher, worker
	}
}

// reportText is a termination message as the agent writes it.
func reportText(t testing.TB, report protocol.Report) string {
	t.Helper()
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

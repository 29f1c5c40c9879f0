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
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

var kinds = []job.Kind{job.KindTrainJob, job.KindMPIJob}

// When things happen to the jobs of these tests, in seconds.
const (
	submitted = 0
	created   = 1
	placed    = 2
	ready     = 5
	present   = 60
)

func at(second float64) time.Time {
	return time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC).Add(time.Duration(second * float64(time.Second)))
}

func stamp(second float64) metav1.Time { return metav1.Time{Time: at(second)} }

// patience is that of the default configuration.
var patience = Patience{Image: 5 * time.Minute, Quota: time.Minute, Restart: 10 * time.Second}

// scene is a job, its object as the API server has it, and what is seen of it.
type scene struct {
	t        testing.TB
	made     *job.Job
	seen     Observed
	trainJob v2alpha1.TrainJob
	mpiJob   v2beta1.MPIJob
	// free is what a count of nodes would come to, and coming whether there will
	// be more.
	free   int
	coming bool
	// asked is what had to be found out for the last verdict.
	asked []Ask
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
	scene := &scene{t: t, made: &job.Job{
		Kind: kind, Namespace: "team", Name: "train", UID: "b7", Slots: 2,
		Launcher: job.Role{Replicas: 1, Template: template("1Gi")}, Worker: job.Role{Replicas: workers, Template: template("4Gi")},
		Gang: job.Gang{MinMember: workers + 1, TimeoutSeconds: 300},
	}}
	scene.seen = Observed{Now: at(present), Patience: patience, GangWords: "The scheduler places them one by one."}
	scene.trainJob.CreationTimestamp, scene.mpiJob.CreationTimestamp = stamp(submitted), stamp(submitted)
	for _, option := range options {
		option(scene)
	}
	return scene
}

// runningScene is a job of two workers that runs and whose status says so.
func runningScene(t testing.TB, kind job.Kind, options ...option) *scene {
	return startedScene(t, kind, runs, options...)
}

// startedScene is a job of two workers whose pods are all in the same state.
func startedScene(t testing.TB, kind job.Kind, state podOption, options ...option) *scene {
	scene := newScene(t, kind, 2, options...)
	scene.addPods(state)
	scene.settle()
	return scene
}

func (scene *scene) addPods(state podOption) {
	scene.seen.Workload.Exists = true
	scene.seen.Launchers = []*corev1.Pod{scene.newPod(training.RoleLauncher, 0, state)}
	scene.seen.Workers = nil
	for index := range scene.made.Worker.Replicas {
		scene.seen.Workers = append(scene.seen.Workers, scene.newPod(training.RoleWorker, index, state))
	}
}

// podName is the name of a pod of the present start.
func (scene *scene) podName(role string, index int32) string {
	return plan.PodName(scene.made, role, index, scene.start)
}

// expand puts the names of pods into a text: {launcher}, {worker 1}, {initializer}.
func (scene *scene) expand(text string) string {
	text = strings.ReplaceAll(text, "{launcher}", scene.podName(training.RoleLauncher, 0))
	text = strings.ReplaceAll(text, "{initializer}", scene.podName(training.RoleInitializer, 0))
	for index := range int32(5) {
		text = strings.ReplaceAll(text, fmt.Sprintf("{worker %d}", index), scene.podName(training.RoleWorker, index))
	}
	return text
}

// newPod is a pod as the API server has it when it was just created.
func (scene *scene) newPod(role string, index int32, options ...podOption) *corev1.Pod {
	template := scene.made.Worker.Template
	if role == training.RoleLauncher {
		template = scene.made.Launcher.Template
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: scene.podName(role, index), UID: types.UID(scene.podName(role, index)), CreationTimestamp: stamp(created),
			Labels: plan.RoleSelector(scene.made, role),
		},
		Spec:   *template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if role == training.RoleInitializer {
		pod.Spec.Containers[0].Name, pod.Spec.RestartPolicy = "dataset", corev1.RestartPolicyOnFailure
	}
	pod.Labels[training.LabelRestart] = strconv.Itoa(int(scene.start))
	switch role {
	case training.RoleLauncher:
		pod.Spec.Hostname = plan.NamesOf(scene.made).LauncherHost
	case training.RoleWorker:
		pod.Spec.Hostname = plan.WorkerHost(scene.made, index)
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func (scene *scene) launcher(options ...podOption) *corev1.Pod {
	return change(scene.seen.Launchers[len(scene.seen.Launchers)-1], options)
}

func (scene *scene) worker(index int, options ...podOption) *corev1.Pod {
	return change(scene.seen.Workers[index], options)
}

// everyPod changes all pods of launcher and workers.
func (scene *scene) everyPod(options ...podOption) {
	for _, pods := range [][]*corev1.Pod{scene.seen.Launchers, scene.seen.Workers} {
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

// previous is what the object's status says.
func (scene *scene) previous() Previous {
	if scene.made.Kind == job.KindMPIJob {
		return FromMPIJob(&scene.mpiJob)
	}
	return FromTrainJob(&scene.trainJob)
}

// look is the verdict, once everything that it asks for was found out: what the
// operator does.
func (scene *scene) look() Verdict {
	scene.t.Helper()
	scene.asked = nil
	for range 4 {
		verdict := Of(scene.made, scene.previous(), scene.seen)
		switch verdict.Ask {
		case AskNothing:
			return verdict
		case AskConfirmation:
			scene.seen.Confirmed = true
		case AskNodes:
			if scene.coming && !scene.seen.ScaleUp {
				scene.seen.ScaleUp = true
			} else {
				scene.seen.FreeNodes = &NodeCount{Fitting: scene.free, Asked: scene.free, Free: scene.free}
			}
		}
		scene.asked = append(scene.asked, verdict.Ask)
	}
	scene.t.Fatalf("asks for ever: %v", scene.asked)
	return Verdict{}
}

// settle looks and writes the verdict down, as the API server would store it.
func (scene *scene) settle() Verdict {
	scene.t.Helper()
	verdict := scene.look()
	scene.store(&verdict)
	return verdict
}

func (scene *scene) store(verdict *Verdict) {
	now := metav1.Time{Time: scene.seen.Now}
	if scene.made.Kind == job.KindMPIJob {
		verdict.MPIJobStatus(scene.made, &scene.mpiJob.Status, 1, now)
		scene.mpiJob = stored(scene.t, scene.mpiJob)
		return
	}
	verdict.TrainJobStatus(scene.made, &scene.trainJob.Status, 1, now)
	scene.trainJob = stored(scene.t, scene.trainJob)
}

// stored is an object after it was in the API server: with times in seconds.
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

// after moves the clock and looks as the operator does: at the cache first.
func (scene *scene) after(second float64) {
	scene.seen.Now, scene.seen.Confirmed, scene.seen.FreeNodes, scene.seen.ScaleUp = at(second), false, nil, false
}

// condition is one of the object's conditions as text: status, reason, message.
func (scene *scene) condition(kind string) string {
	if scene.made.Kind == job.KindMPIJob {
		for _, condition := range scene.mpiJob.Status.Conditions {
			if string(condition.Type) == kind {
				return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
			}
		}
		return ""
	}
	for _, condition := range scene.trainJob.Status.Conditions {
		if condition.Type == kind {
			return fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
		}
	}
	return ""
}

func backoffLimit(limit int32) option {
	return func(scene *scene) { scene.made.Lifetime.BackoffLimit = limit }
}

func deadline(seconds int64) option {
	return func(scene *scene) { scene.made.Lifetime.ActiveDeadlineSeconds = &seconds }
}

func timeToLive(seconds int32) option {
	return func(scene *scene) { scene.made.Lifetime.TTLSecondsAfterFinished = &seconds }
}

func initialized(scene *scene) {
	scene.made.Initializer = &job.Initializer{Dataset: &job.Source{URI: "s3://data/set"}, ClaimName: "data"}
}

// restartPolicies are those of launcher and workers.
func restartPolicies(launcher, worker corev1.RestartPolicy) option {
	return func(scene *scene) {
		scene.made.Launcher.Template.Spec.RestartPolicy, scene.made.Worker.Template.Spec.RestartPolicy = launcher, worker
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

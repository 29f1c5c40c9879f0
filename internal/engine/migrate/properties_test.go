// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/testing/random"
)

// seeds is how many random jobs each property is asked of.
const seeds = 600

func unstructuredOf(t testing.TB, object any) map[string]any {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func randomJob(seed int64) *v2beta1.MPIJob {
	mpiJob := random.MPIJob(seed)
	mpiJob.TypeMeta = metav1.TypeMeta{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob"}
	// What the random jobs of others need not have.
	if policy := mpiJob.Spec.RunPolicy.SchedulingPolicy; policy != nil && seed%7 == 0 {
		policy.MinAvailable, policy.MinResources = new(int32(seed%3)+1), &corev1.ResourceList{"cpu": mpiJob.Spec.MPIReplicaSpecs["Launcher"].Template.Spec.Containers[0].Resources.Limits["cpu"]}
	}
	if seed%5 == 0 {
		container := &mpiJob.Spec.MPIReplicaSpecs["Launcher"].Template.Spec.Containers[0]
		container.Command, container.Args = []string{"mpirun"}, []string{"-n", fmt.Sprint(job.FromMPIJob(mpiJob, job.Defaults{}).WorldSize()), "python", "train.py"}
	}
	if worker := mpiJob.Spec.MPIReplicaSpecs["Worker"]; worker != nil && seed%4 == 0 {
		launcher := mpiJob.Spec.MPIReplicaSpecs["Launcher"].Template.Spec.DeepCopy()
		worker.Template.Spec.Containers[0].Env, worker.Template.Spec.Volumes = launcher.Containers[0].Env, launcher.Volumes
		worker.Template.Spec.Containers[0].VolumeMounts = launcher.Containers[0].VolumeMounts
	}
	if seed%9 == 0 {
		mpiJob.Spec.MPIReplicaSpecs["Launcher"].Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	}
	return mpiJob
}

func schedulerOf(seed int64) job.Scheduler {
	return []job.Scheduler{"", "", job.Coscheduling, job.Volcano, job.Native}[seed%5]
}

// Every field of a job is at the place that the report names for it, or the report
// says why it is not.
func TestNothingIsLostSilently(t *testing.T) {
	for seed := range int64(seeds) {
		raw := unstructuredOf(t, randomJob(seed))
		result, err := Convert(raw, Options{Scheduler: schedulerOf(seed)})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		outputs := map[string]map[string]any{"TrainJob": unstructuredOf(t, result.TrainJob), "TrainingRuntime": unstructuredOf(t, result.Runtime)}
		for _, path := range leaves(raw, "") {
			if fault := accounted(raw, outputs, result.Report, path); fault != "" {
				t.Errorf("seed %d: %s: %s", seed, path, fault)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// accounted is what is wrong with what became of a leaf.
func accounted(raw map[string]any, outputs map[string]map[string]any, report *Report, path string) string {
	var nearest *Entry
	for i := range report.Entries {
		if entry := &report.Entries[i]; entry.covers(path) && (nearest == nil || len(entry.Path) > len(nearest.Path)) {
			nearest = entry
		}
	}
	switch {
	case nearest == nil:
		return "is not in the report"
	case strings.Contains(nearest.Why, notAField) || strings.Contains(nearest.Why, noRule):
		return nearest.Why
	case nearest.Outcome != Mapped && nearest.Outcome != Moved:
		if nearest.Why == "" {
			return string(nearest.Outcome) + " without a word"
		}
		return ""
	case nearest.rewritten:
		if nearest.Why == "" {
			return "has another value without a word"
		}
		return ""
	}
	kind, place, _ := strings.Cut(nearest.To, " ")
	found, there := lookup(outputs[kind], place+path[len(nearest.Path):])
	want, _ := lookup(raw, path)
	if !there && !isZero(want) {
		return fmt.Sprintf("is not at %s%s", nearest.To, path[len(nearest.Path):])
	}
	if there && !equality.Semantic.DeepEqual(want, found) {
		return fmt.Sprintf("is %v at %s%s, and was %v", found, nearest.To, path[len(nearest.Path):], want)
	}
	return ""
}

// Both models agree on everything that the report does not name.
func TestTrainJobBehavesLikeMPIJob(t *testing.T) {
	defaults := config.Default().JobDefaults()
	for seed := range int64(seeds) {
		raw := unstructuredOf(t, randomJob(seed))
		result, err := Convert(raw, Options{Scheduler: schedulerOf(seed)})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		// As it is read: nothing and an empty list are the same.
		mpiJob := &v2beta1.MPIJob{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, mpiJob); err != nil {
			t.Fatal(err)
		}
		before, after := job.FromMPIJob(mpiJob, defaults), job.FromTrainJob(result.TrainJob, &result.Runtime.Spec, defaults)
		excuse(t, result.Report, before, after)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Fatalf("seed %d: the report does not name this (-MPIJob +TrainJob):\n%s", seed, diff)
		}
	}
}

// excuses are what a report may name, and what it then excuses.
type excuses struct {
	report        *Report
	before, after *job.Job
}

// names tells whether the report says that a field is not what it was.
func (e excuses) names(path string) bool {
	return slices.ContainsFunc(e.report.Entries, func(entry Entry) bool {
		return entry.Path == path && (entry.Outcome == Review || entry.Outcome == Dropped || entry.Outcome == Default || entry.rewritten) && entry.Why != ""
	})
}

// excuse makes both models the same where the report says that they differ, and
// where they differ by what they are.
func excuse(t *testing.T, report *Report, before, after *job.Job) {
	t.Helper()
	excuses := excuses{report, before, after}
	before.Kind, before.UID = after.Kind, after.UID
	for path, level := range map[string]func(){
		"spec.runLauncherAsWorker":                     func() { before.LauncherRunsRanks = after.LauncherRunsRanks },
		"spec.launcherCreationPolicy":                  func() { before.LauncherWaits = after.LauncherWaits },
		"spec.runPolicy.suspend":                       func() { before.Suspended = after.Suspended },
		"spec.cleanPodPolicy":                          func() { before.Lifetime.CleanPodPolicy = after.Lifetime.CleanPodPolicy },
		"spec.runPolicy.schedulingPolicy.minAvailable": func() { before.Gang.MinMember = after.Gang.MinMember },
		"spec.runPolicy.schedulingPolicy.minResources": func() { before.Gang.MinResources = after.Gang.MinResources },
		timeoutPath:                   func() { before.Gang.TimeoutSeconds = after.Gang.TimeoutSeconds },
		"spec.mpiReplicaSpecs.Worker": func() { before.Worker, before.Gang.MinMember = after.Worker, after.Gang.MinMember },
		mainOf(v2beta1.MPIReplicaTypeLauncher, "image"): func() { container(&before.Launcher).Image = container(&after.Launcher).Image },
		mainOf(v2beta1.MPIReplicaTypeLauncher, "resources"): func() {
			container(&before.Launcher).Resources = container(&after.Launcher).Resources
		},
	} {
		if excuses.names(path) {
			level()
		}
	}
	// Which scheduler it is, is what the cluster has; the option says it.
	before.Gang.Scheduler = after.Gang.Scheduler
	excuses.command()
	excuses.sshd()
	for _, role := range []*job.Role{&before.Launcher, &before.Worker, &after.Launcher, &after.Worker} {
		normal(&role.Template)
	}
}

func mainOf(role v2beta1.MPIReplicaType, field string) string {
	return replicaPath(role) + ".template.spec.containers[0]." + field
}

func container(role *job.Role) *corev1.Container { return &role.Template.Spec.Containers[0] }

// command: a plain mpirun is the operator's now, which writes -np for -n.
func (e excuses) command() {
	if !e.names(mainOf(v2beta1.MPIReplicaTypeLauncher, "command")) {
		return
	}
	launcher := container(&e.before.Launcher)
	launcher.Command, launcher.Args = slices.Concat(launcher.Command, launcher.Args), nil
	if launcher.Command[1] == "-n" {
		launcher.Command[1] = "-np"
	}
	for _, entry := range e.report.Entries {
		if strings.Contains(entry.Why, "fails if a node is not used") {
			e.before.RequireAllHosts = true
		}
	}
}

// sshd: where it went, workers have no command and pods are held to what the
// report says; else it is not used by either.
func (e excuses) sshd() {
	before, after := e.before, e.after
	if before.WorkersRunAgent() {
		before.SSHDirectory = after.SSHDirectory
		return
	}
	worker := container(&before.Worker)
	for _, dropped := range []struct {
		field string
		drop  func()
	}{
		{"command", func() { worker.Command, worker.Args = nil, nil }}, {"readinessProbe", func() { worker.ReadinessProbe = nil }},
		{"livenessProbe", func() { worker.LivenessProbe = nil }}, {"startupProbe", func() { worker.StartupProbe = nil }},
	} {
		if slices.ContainsFunc(e.report.Of(Dropped), func(entry Entry) bool { return entry.Path == mainOf(v2beta1.MPIReplicaTypeWorker, dropped.field) }) {
			dropped.drop()
		}
	}
	if e.report.Entries != nil && after.WorkersRunAgent() {
		before.SSHDirectory = after.SSHDirectory
	}
	for role, pods := range map[v2beta1.MPIReplicaType][2]*job.Role{
		v2beta1.MPIReplicaTypeLauncher: {&before.Launcher, &after.Launcher}, v2beta1.MPIReplicaTypeWorker: {&before.Worker, &after.Worker},
	} {
		if !e.names(replicaPath(role) + ".template.spec.securityContext") {
			continue
		}
		for _, pods := range pods {
			unsecured(&pods.Template.Spec)
		}
	}
}

// unsecured is a pod without what is set where it is silent. What it says itself
// is compared by the other property.
func unsecured(pod *corev1.PodSpec) {
	pod.SecurityContext = nil
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			containers[i].SecurityContext = nil
		}
	}
}

// normal is a template as its pods see it.
func normal(template *corev1.PodTemplateSpec) {
	template.ObjectMeta = metav1.ObjectMeta{Labels: template.Labels, Annotations: template.Annotations, Finalizers: template.Finalizers}
	// Set by the operator, on the pods of either kind.
	delete(template.Annotations, training.IstioInject)
	template.Spec.RestartPolicy = ""
	if container := &template.Spec.Containers[0]; len(container.Command) > 0 {
		container.Command, container.Args = slices.Concat(container.Command, container.Args), nil
	}
	// Nothing and an empty list are the same for whoever creates pods.
	for _, containers := range [][]corev1.Container{template.Spec.InitContainers, template.Spec.Containers} {
		for i := range containers {
			if len(containers[i].Env) == 0 {
				containers[i].Env = nil
			}
			if len(containers[i].Command) == 0 {
				containers[i].Command = nil
			}
			if len(containers[i].Args) == 0 {
				containers[i].Args = nil
			}
		}
	}
}

// What admission accepts as an MPIJob it accepts as what becomes of it, with
// exceptions that are known.
func TestWhatWasAcceptedIsAccepted(t *testing.T) {
	rules := validation.NewRules(config.Default(), false)
	in := &validation.ClusterFacts{HasPriorityClass: func(string) bool { return true }}
	accepted := 0
	for seed := range int64(seeds) {
		raw := unstructuredOf(t, randomJob(seed))
		if len(rules.CreateMPIJob(randomJob(seed), in).Errors) > 0 {
			continue
		}
		accepted++
		result, err := Convert(raw, Options{Scheduler: schedulerOf(seed)})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range result.Report.Of(Review) {
			// A TrainJob has no deadline of 0, and where an sshd was, the agent listens.
			known := entry.Path == "spec.runPolicy.activeDeadlineSeconds" || strings.Contains(entry.Why, "the operator's agent in the first container uses port 2222")
			if strings.Contains(entry.Why, refusedPrefix) && !known {
				t.Fatalf("seed %d: %+v", seed, entry)
			}
		}
	}
	if accepted < seeds/4 {
		t.Errorf("only %d of %d jobs were accepted at all", accepted, seeds)
	}
}

// A runtime that is there is taken only if the job becomes the same with it.
func TestExistingRuntimeIsUsedOnlyIfSame(t *testing.T) {
	taken := 0
	for seed := range int64(300) {
		raw := unstructuredOf(t, randomJob(seed))
		own, err := Convert(raw, Options{})
		if err != nil {
			t.Fatal(err)
		}
		other := own.Runtime.Spec.DeepCopy()
		other.MLPolicy.NumNodes = new(int32(7))
		other.Template.Spec.ReplicatedJobs[0].Template.Spec.Containers[0].Name = "otherwise"
		different := other.DeepCopy()
		different.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Env = append(
			different.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "ONE_MORE", Value: "1"})
		result, err := Convert(raw, Options{Runtimes: []v2alpha1.ClusterTrainingRuntime{
			{ObjectMeta: metav1.ObjectMeta{Name: "different"}, Spec: *different}, {ObjectMeta: metav1.ObjectMeta{Name: "same"}, Spec: *other},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if result.Runtime != nil || result.TrainJob.Spec.RuntimeRef != (v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "same"}) {
			t.Fatalf("seed %d: the job names %+v", seed, result.TrainJob.Spec.RuntimeRef)
		}
		taken++
		if result.Report.Runtime != "ClusterTrainingRuntime same" {
			t.Fatalf("the report names %s", result.Report.Runtime)
		}
	}
	if taken == 0 {
		t.Error("no runtime was ever taken")
	}
}

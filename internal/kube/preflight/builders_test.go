// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const namespace = "team"

var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func ago(seconds int) metav1.Time {
	return metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func template(role string, requests corev1.ResourceList) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: role, Image: "registry.example/train:1", Resources: corev1.ResourceRequirements{Requests: requests, Limits: requests},
	}}}}
}

func mpiJob(change ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	mpiJob := &v2beta1.MPIJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job", UID: "uid", CreationTimestamp: ago(60)},
		Spec: v2beta1.MPIJobSpec{MPIReplicaSpecs: map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{
			v2beta1.MPIReplicaTypeLauncher: {Template: template("launcher", amounts("cpu", "1", "memory", "1Gi"))},
			v2beta1.MPIReplicaTypeWorker:   {Replicas: new(int32(2)), Template: template("worker", amounts("cpu", "4", "memory", "8Gi"))},
		}},
	}
	mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command = []string{"mpirun", "train"}
	for _, change := range change {
		change(mpiJob)
	}
	return mpiJob
}

func runtimeSpec() *v2alpha1.TrainingRuntimeSpec {
	return &v2alpha1.TrainingRuntimeSpec{
		MLPolicy: v2alpha1.MLPolicy{NumNodes: new(int32(2)), MPIImplementation: v2alpha1.MPIImplementationOpenMPI},
		Template: v2alpha1.RuntimeTemplate{Spec: v2alpha1.RuntimeTemplateSpec{ReplicatedJobs: []v2alpha1.ReplicatedJob{
			{Name: v2alpha1.ReplicatedJobLauncher, Template: template("launcher", amounts("cpu", "1", "memory", "1Gi"))},
			{Name: v2alpha1.ReplicatedJobWorker, Template: template("worker", amounts("cpu", "4", "memory", "8Gi"))},
		}}},
	}
}

func trainJob(change ...func(*v2alpha1.TrainJob)) *v2alpha1.TrainJob {
	trainJob := &v2alpha1.TrainJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job", UID: "uid", CreationTimestamp: ago(60)},
		Spec: v2alpha1.TrainJobSpec{
			RuntimeRef: v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "runtime"},
			Trainer:    v2alpha1.Trainer{Image: "registry.example/train:1", Command: []string{"train"}},
		},
	}
	for _, change := range change {
		change(trainJob)
	}
	return trainJob
}

// kinds are the models of the same job, written as either kind.
func kinds() map[job.Kind]*job.Job {
	return map[job.Kind]*job.Job{
		job.KindMPIJob:   job.FromMPIJob(mpiJob(), job.Defaults{}),
		job.KindTrainJob: job.FromTrainJob(trainJob(), runtimeSpec(), job.Defaults{}),
	}
}

func node(name string, change ...func(*corev1.Node)) corev1.Node {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Allocatable: amounts("cpu", "16", "memory", "64Gi", "pods", "110"), Images: []corev1.ContainerImage{{Names: []string{"registry.example/train:1"}}},
	}}
	for _, change := range change {
		change(&node)
	}
	return node
}

func podOf(model *job.Job, role, name string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: plan.PodLabels(model, role), CreationTimestamp: ago(50)},
		Spec:       *roleOf(model, role).Template.Spec.DeepCopy(),
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// pending are the facts of a job whose pods are there and wait for nodes, in a
// cluster that is in order.
func pending(model *job.Job, change ...func(*Facts)) *Facts {
	facts := &Facts{
		Now: now, Namespace: namespace, Kind: model.Kind, Name: "job", Stored: true, Job: model, OperatorNamespace: DefaultOperatorNamespace,
		Previous:        diagnosis.Previous{Progress: training.Progress{Phase: training.PhasePending}, Submitted: ago(60)},
		NamespaceObject: Known[*corev1.Namespace]{Value: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{corev1.LabelMetadataName: namespace}}}},
		Nodes:           Known[[]corev1.Node]{Value: []corev1.Node{node("a"), node("b")}},
		Used:            Known[map[string]corev1.ResourceList]{Value: map[string]corev1.ResourceList{}},
		Service:         Known[*corev1.Service]{Value: &corev1.Service{}},
		Endpoints: Known[[]discoveryv1.EndpointSlice]{Value: []discoveryv1.EndpointSlice{
			{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}},
		}},
		Deployment: Known[*appsv1.Deployment]{Value: &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, ReadyReplicas: 2}}},
		Lease: Known[*coordinationv1.Lease]{Value: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			RenewTime: &metav1.MicroTime{Time: now.Add(-2 * time.Second)}, LeaseDurationSeconds: new(int32(15)),
		}}},
		Submission: Submission{DryRun: true},
	}
	facts.Pods.Value = []corev1.Pod{podOf(model, training.RoleLauncher, "job-launcher"), podOf(model, training.RoleWorker, "job-worker-0"), podOf(model, training.RoleWorker, "job-worker-1")}
	for _, change := range change {
		change(facts)
	}
	return facts
}

// submitted are the facts of the same job before it is submitted.
func submitted(model *job.Job, change ...func(*Facts)) *Facts {
	return pending(model, slices.Concat([]func(*Facts){func(facts *Facts) {
		facts.Stored, facts.Pods.Value, facts.Previous = false, nil, diagnosis.Previous{}
	}}, change)...)
}

func reach(steps ...training.TimelineStep) func(*Facts) {
	return func(facts *Facts) {
		for _, step := range steps {
			facts.Previous.Timeline = append(facts.Previous.Timeline, training.TimelineEntry{Step: step, Time: ago(10)})
		}
	}
}

func runs(facts *Facts) {
	facts.Previous.Phase = training.PhaseRunning
	reach(training.StepScheduled, training.StepPodsReady, training.StepWorkersReached)(facts)
	for i := range facts.Pods.Value {
		pod := &facts.Pods.Value[i]
		pod.Spec.NodeName, pod.Status.Phase, pod.Status.PodIP = "a", corev1.PodRunning, "10.0.0.1"
	}
}

func fails(reason training.FailureReason, message string) func(*Facts) {
	return func(facts *Facts) {
		facts.Previous.Phase, facts.Previous.FailureReason, facts.Previous.FailureMessage = training.PhaseFailed, reason, message
		facts.Pods.Value = nil
	}
}

// failsBy is a failure for which Kubernetes reports a cause.
func failsBy(reason training.FailureReason, cause string) func(*Facts) {
	return func(facts *Facts) {
		fails(reason, "Worker 0 failed")(facts)
		facts.Previous.FailureCause = cause
	}
}

func succeeds(facts *Facts) { facts.Previous.Phase = training.PhaseSucceeded }

// inBrief is a finding as tables have it.
func inBrief(findings []Finding) []string {
	brief := []string{}
	for _, finding := range findings {
		brief = append(brief, finding.Rank.String()+": "+finding.Title)
	}
	return brief
}

// tableCase is facts, and what a check must find in them.
type tableCase struct {
	change func(*Facts)
	want   []string
	// fix is a word of the first finding's fix.
	fix string
}

// table runs a check on facts of a pending job of either kind.
func table(t *testing.T, check func(*Facts) []Finding, facts func(*job.Job, ...func(*Facts)) *Facts, cases map[string]tableCase) {
	t.Helper()
	for name, test := range cases {
		for kind, model := range kinds() {
			t.Run(name+", "+string(kind), func(t *testing.T) {
				input := facts(model)
				if test.change != nil {
					test.change(input)
				}
				findings := check(input)
				if test.want == nil {
					test.want = []string{}
				}
				if diff := cmp.Diff(test.want, inBrief(findings)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				wantHelp(t, findings)
				if test.fix != "" && (len(findings) == 0 || !contains(findings[0].Fix, test.fix)) {
					t.Errorf("no word of %q in the fix: %+v", test.fix, findings)
				}
			})
		}
	}
}

// wantHelp fails if something that hinders comes without help.
func wantHelp(t *testing.T, findings []Finding) {
	t.Helper()
	for _, finding := range findings {
		if finding.Title == "" || finding.Rank.Blocks() && (finding.Fix == "" || finding.Documentation == "") || finding.Rank == NotKnown && finding.Cause == "" {
			t.Errorf("a finding without help: %+v", finding)
		}
	}
}

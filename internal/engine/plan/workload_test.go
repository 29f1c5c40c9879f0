// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// The operator restarts the launcher, whatever its template sets: the kubelet would
// restart it before the operator can read the failure.
func TestLauncherIsNeverRestartedByTheKubelet(t *testing.T) {
	launcherRestarts := func(policy v2beta1.RestartPolicy) option {
		return func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].RestartPolicy = policy
		}
	}
	tests := map[string]struct {
		job       func() *job.Job
		wantLimit int32
	}{
		"an MPIJob":                  {ofMPIJob(), 6},
		"an MPIJob with a limit":     {ofMPIJob(backoffLimit(2)), 2},
		"an MPIJob without restarts": {ofMPIJob(backoffLimit(0)), 0},
		"an MPIJob with Never":       {ofMPIJob(launcherRestarts(v2beta1.RestartPolicyNever)), 6},
		"an MPIJob with OnFailure":   {ofMPIJob(launcherRestarts(v2beta1.RestartPolicyOnFailure)), 6},
		"a TrainJob":                 {ofTrainJob(), 0},
		"a TrainJob with a limit":    {ofTrainJob(restarts(2)), 2},
		"a TrainJob with OnFailure":  {ofTrainJob(runtimeDoes(func(template *corev1.PodTemplateSpec) { template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure })), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := whole{job: tc.job}.plan(t)
			if got := launcherIn(t, plan).Spec.RestartPolicy; got != corev1.RestartPolicyNever {
				t.Errorf("the pod is restarted %s", got)
			}
			for role, template := range templatesOf(plan.Ensure) {
				if got := template.Spec.RestartPolicy; got != corev1.RestartPolicyNever {
					t.Errorf("the template of the %s is restarted %s", role, got)
				}
			}
			var limit int32
			switch workload := plan.Ensure[len(plan.Ensure)-1].(type) {
			case *batchv1.Job:
				limit = *workload.Spec.BackoffLimit
			case *jobset.JobSet:
				limit = workload.Spec.FailurePolicy.MaxRestarts
			}
			if limit != tc.wantLimit {
				t.Errorf("the workload's limit is %d, want %d", limit, tc.wantLimit)
			}
		})
	}
}

// A JobSet has one Indexed Job for each role.
func TestJobSet(t *testing.T) {
	set := one[*jobset.JobSet](t, whole{job: ofTrainJob(nodes(3), restarts(2))}.plan(t).Ensure)
	// JobSet's own controller must not manage it.
	if got := set.Spec.ManagedBy; got == nil || *got != "training.kubeflow.org/trireme" {
		t.Errorf("managedBy is %v", got)
	}
	wantPods := map[string]int32{"launcher": 1, "worker": 3}
	for i := range set.Spec.ReplicatedJobs {
		replicated := &set.Spec.ReplicatedJobs[i]
		spec := &replicated.Template.Spec
		if want := wantPods[replicated.Name]; replicated.Replicas != 1 || *spec.Parallelism != want || *spec.Completions != want || *spec.CompletionMode != batchv1.IndexedCompletion {
			t.Errorf("%s is %d Jobs of %d pods at a time, %d in all, %s", replicated.Name, replicated.Replicas, *spec.Parallelism, *spec.Completions, *spec.CompletionMode)
		}
		if *spec.BackoffLimit != 0 {
			t.Errorf("pods of %s are recreated %d times", replicated.Name, *spec.BackoffLimit)
		}
		delete(wantPods, replicated.Name)
	}
	if len(wantPods) > 0 {
		t.Errorf("no %v", wantPods)
	}
	wantFailure := &jobset.FailurePolicy{MaxRestarts: 2, RestartStrategy: jobset.BlockingRecreate}
	if diff := cmp.Diff(wantFailure, set.Spec.FailurePolicy); diff != "" {
		t.Errorf("failurePolicy (-want +got):\n%s", diff)
	}
	wantSuccess := &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{"launcher"}}
	if diff := cmp.Diff(wantSuccess, set.Spec.SuccessPolicy); diff != "" {
		t.Errorf("successPolicy (-want +got):\n%s", diff)
	}
	wantNetwork := &jobset.Network{EnableDNSHostnames: new(true), Subdomain: "bert-worker", PublishNotReadyAddresses: new(true)}
	if diff := cmp.Diff(wantNetwork, set.Spec.Network); diff != "" {
		t.Errorf("network (-want +got):\n%s", diff)
	}
}

// Kubernetes' Job controller does not manage the launcher's Job.
func TestLauncherJob(t *testing.T) {
	launcher := one[*batchv1.Job](t, whole{job: ofMPIJob()}.plan(t).Ensure)
	want := batchv1.JobSpec{
		ManagedBy: new("training.kubeflow.org/trireme"), BackoffLimit: new(int32(6)), Template: launcher.Spec.Template,
	}
	if diff := cmp.Diff(want, launcher.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// What starts MPI is added to pods only, so that the workload shows what the user wrote.
func TestWorkloadTemplates(t *testing.T) {
	for name, tc := range plans {
		if tc.state.Stage != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			j, templates := tc.job(), templatesOf(tc.plan(t).Ensure)
			want := map[string]*corev1.PodTemplateSpec{training.RoleLauncher: j.Launcher.Template.DeepCopy()}
			want[training.RoleLauncher].Spec.RestartPolicy = corev1.RestartPolicyNever
			if j.Kind == job.KindTrainJob {
				want[training.RoleWorker] = j.Worker.Template.DeepCopy()
			}
			if diff := cmp.Diff(want, templates); diff != "" {
				t.Errorf("templates (-model +workload):\n%s", diff)
			}
		})
	}
}

func TestPriorityAndQueueReachThePods(t *testing.T) {
	for name, tc := range map[string]whole{
		"an MPIJob":  {job: ofMPIJob(priority("urgent"), volcanoQueue("research")), has: hasVolcano},
		"a TrainJob": {job: ofTrainJob(asksVolcano("research", "urgent")), has: hasVolcano},
	} {
		t.Run(name, func(t *testing.T) {
			for name, pod := range podsOf(tc.plan(t)) {
				if pod.Spec.PriorityClassName != "urgent" || pod.Annotations["scheduling.volcano.sh/queue-name"] != "research" {
					t.Errorf("%s has the priority %q and the queue %q", name, pod.Spec.PriorityClassName, pod.Annotations["scheduling.volcano.sh/queue-name"])
				}
			}
		})
	}
}

// On the host's network, pods use the host's nameservers by default, which do not
// resolve the hosts of a job.
func TestDNSPolicyOnHostNetwork(t *testing.T) {
	policy := func(policy corev1.DNSPolicy) func(*corev1.PodTemplateSpec) {
		return func(template *corev1.PodTemplateSpec) { template.Spec.DNSPolicy = policy }
	}
	tests := map[string]struct {
		change func(*corev1.PodTemplateSpec)
		host   bool
		want   corev1.DNSPolicy
	}{
		"no policy":                     {host: true, want: corev1.DNSClusterFirstWithHostNet},
		"Kubernetes' default":           {host: true, change: policy(corev1.DNSClusterFirst), want: corev1.DNSClusterFirstWithHostNet},
		"another policy":                {host: true, change: policy(corev1.DNSNone), want: corev1.DNSNone},
		"the host's policy":             {host: true, change: policy(corev1.DNSDefault), want: corev1.DNSDefault},
		"on the pod's network":          {want: ""},
		"a policy on the pod's network": {change: policy(corev1.DNSClusterFirst), want: corev1.DNSClusterFirst},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			change := func(template *corev1.PodTemplateSpec) {
				template.Spec.HostNetwork = tc.host
				if tc.change != nil {
					tc.change(template)
				}
			}
			for _, j := range []func() *job.Job{ofMPIJob(both(change)), ofTrainJob(runtimeDoes(change))} {
				for name, pod := range podsOf(whole{job: j}.plan(t)) {
					if pod.Spec.DNSPolicy != tc.want {
						t.Errorf("%s has dnsPolicy %q, want %q", name, pod.Spec.DNSPolicy, tc.want)
					}
				}
			}
		})
	}
}

// A user may list the agent's port. The API server refuses a port that is listed twice.
func TestListedPortIsNotRepeated(t *testing.T) {
	ssh := corev1.ContainerPort{Name: "ssh", ContainerPort: 2222}
	other := corev1.ContainerPort{Name: "metrics", ContainerPort: 2222, Protocol: corev1.ProtocolUDP}
	ours := corev1.ContainerPort{Name: "trireme-ssh", ContainerPort: 2222, Protocol: corev1.ProtocolTCP}
	tests := map[string]struct {
		listed, want []corev1.ContainerPort
		probed       intstr.IntOrString
	}{
		"nothing":          {want: []corev1.ContainerPort{ours}, probed: intstr.FromString("trireme-ssh")},
		"the port":         {listed: []corev1.ContainerPort{ssh}, want: []corev1.ContainerPort{ssh}, probed: intstr.FromInt32(2222)},
		"another protocol": {listed: []corev1.ContainerPort{other}, want: []corev1.ContainerPort{other, ours}, probed: intstr.FromString("trireme-ssh")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lists := both(func(template *corev1.PodTemplateSpec) { template.Spec.Containers[0].Ports = tc.listed })
			for name, pod := range podsOf(whole{job: ofMPIJob(lists)}.plan(t)) {
				if diff := cmp.Diff(tc.want, container(pod).Ports); diff != "" {
					t.Errorf("ports of %s (-want +got):\n%s", name, diff)
				}
				if got := container(pod).ReadinessProbe.TCPSocket.Port; got != tc.probed {
					t.Errorf("%s is ready when %s answers, want %s", name, got.String(), tc.probed.String())
				}
			}
		})
	}
}

// An index in a template would be the same for all pods, so it is removed.
func TestReplicaIndexes(t *testing.T) {
	tests := map[string]struct {
		job  func() *job.Job
		want map[string]string
	}{
		"an MPIJob":  {ofMPIJob(both(ownNames)), map[string]string{"resnet-worker-0": "0", "resnet-worker-1": "1"}},
		"a TrainJob": {ofTrainJob(nodes(2), runtimeDoes(ownNames)), map[string]string{"bert-worker-0-0-r0": "0", "bert-worker-0-1-r0": "1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for name, pod := range podsOf(whole{job: tc.job}.plan(t)) {
				if index, found := pod.Labels[training.LabelReplicaIndex]; found {
					got[name] = index
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("indexes (-want +got):\n%s", diff)
			}
		})
	}
}

// If the webhook was bypassed, the API server must refuse the pods, and the plan must
// not panic.
func TestInvalidTemplates(t *testing.T) {
	noContainers := func(template *corev1.PodTemplateSpec) { template.Spec.Containers = nil }
	for name, tc := range map[string]struct {
		job  func() *job.Job
		want int
	}{
		"an MPIJob without containers":     {ofMPIJob(both(noContainers)), 3},
		"an MPIJob without a launcher":     {ofMPIJob(func(mpiJob *v2beta1.MPIJob) { delete(mpiJob.Spec.MPIReplicaSpecs, v2beta1.MPIReplicaTypeLauncher) }), 3},
		"an MPIJob with negative workers":  {ofMPIJob(replicas(-1)), 1},
		"a TrainJob without containers":    {ofTrainJob(runtimeDoes(noContainers)), 5},
		"a TrainJob with negative workers": {ofTrainJob(nodes(-1)), 1},
		"a TrainJob with an empty runtime": {ofTrainJob(func(_ *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Template.Spec.ReplicatedJobs = nil
		}), 5},
	} {
		t.Run(name, func(t *testing.T) {
			for _, has := range everyGang {
				for _, stage := range []Stage{Initializing, Suspended, Held, Restarting, Finished, Active} {
					plan := whole{job: tc.job, has: has, state: State{Stage: stage}}.plan(t)
					if stage != Active {
						continue
					}
					pods := podsOf(plan)
					if len(pods) != tc.want {
						t.Errorf("%d pods, want %d", len(pods), tc.want)
					}
					for name, pod := range pods {
						if len(pod.Spec.Containers) == 0 && pod.Labels[training.LabelReplicaType] == "" {
							t.Errorf("%s does not have the labels of the job", name)
						}
					}
				}
			}
		})
	}
}

func TestWorkerIndexVariable(t *testing.T) {
	want := map[string]string{"resnet-worker-0": "0", "resnet-worker-1": "1", "bert-worker-0-0-r0": "0", "bert-worker-0-1-r0": "1"}
	got := map[string]string{}
	for _, j := range []func() *job.Job{ofMPIJob(launcherRunsRanks), ofTrainJob(nodes(2))} {
		for name, pod := range podsOf(whole{job: j}.plan(t)) {
			if index, found := variables(container(pod))["MPIJOB_WORKER_INDEX"]; found {
				got[name] = index
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("indexes (-want +got):\n%s", diff)
	}
}

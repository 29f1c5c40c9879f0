// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

func TestNames(t *testing.T) {
	tests := map[string]struct {
		job  *job.Job
		want Names
	}{
		"an MPIJob": {job: mpiJob(), want: Names{
			Service: "resnet-worker", Hostfile: "resnet-hostfile", Secret: "resnet-ssh-key", NetworkPolicy: "mpijob-resnet",
			Workload: "resnet-launcher", LauncherHost: "resnet-launcher",
		}},
		"a TrainJob": {job: trainJob(), want: Names{
			Service: "bert-worker", Hostfile: "bert-hostfile", Secret: "bert-ssh", NetworkPolicy: "trainjob-bert-network",
			Workload: "bert", LauncherHost: "bert-launcher-0-0",
		}},
		"a TrainJob with an existing PVC": {job: trainJob(fetches("s3://bucket/set", ""), claim("shared")), want: Names{
			Service: "bert-worker", Hostfile: "bert-hostfile", Secret: "bert-ssh", NetworkPolicy: "trainjob-bert-network",
			Workload: "bert", LauncherHost: "bert-launcher-0-0", Workspace: "shared",
		}},
		"a TrainJob with a new PVC": {job: trainJob(fetches("s3://bucket/set", ""), newClaim("1Gi", "")), want: Names{
			Service: "bert-worker", Hostfile: "bert-hostfile", Secret: "bert-ssh", NetworkPolicy: "trainjob-bert-network",
			Workload: "bert", LauncherHost: "bert-launcher-0-0", Workspace: "bert-workspace",
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := NamesOf(tc.job); got != tc.want {
				t.Errorf("names are %+v, want %+v", got, tc.want)
			}
		})
	}
}

// longest is the longest name that admission accepts.
func longest(t *testing.T, judge func(rules *validation.Rules, in *validation.ClusterFacts, name string) *validation.Findings) string {
	t.Helper()
	rules := validation.NewRules(config.Default(), false)
	for length := 253; length > 0; length-- {
		name := strings.Repeat("n", length)
		in := &validation.ClusterFacts{HasPriorityClass: func(string) bool { return true }}
		if len(judge(rules, in, name).Errors) == 0 {
			return name
		}
	}
	t.Fatal("no name is accepted")
	return ""
}

// For every name that admission accepts, Kubernetes and DNS accept all derived names.
func TestLongestNamesFit(t *testing.T) {
	ofMPIJobNamed := longest(t, func(rules *validation.Rules, in *validation.ClusterFacts, name string) *validation.Findings {
		return rules.CreateMPIJob(mpiJobObject(named(name), replicas(100)), in)
	})
	ofTrainJobNamed := longest(t, func(rules *validation.Rules, in *validation.ClusterFacts, name string) *validation.Findings {
		trainJob, runtime := trainJobObjects(trainJobNamed(name), nodes(64))
		in.Runtime = runtime
		return rules.CreateTrainJob(trainJob, in)
	})
	if len(ofMPIJobNamed) != 53 || len(ofTrainJobNamed) != 44 {
		t.Errorf("names have at most %d and %d characters, want 53 of an MPIJob with 100 workers, 44 of a TrainJob", len(ofMPIJobNamed), len(ofTrainJobNamed))
	}
	ofMPIJob := ofMPIJob(named(ofMPIJobNamed), replicas(100), networkPolicy(training.NetworkPolicyDefault))
	ofTrainJob := ofTrainJob(trainJobNamed(ofTrainJobNamed), nodes(64), fetches("s3://bucket/set", ""), newClaim("1Gi", ""), trainJobNetworkPolicy(training.NetworkPolicyDefault))
	tests := map[string]whole{
		"an MPIJob":          {job: ofMPIJob},
		"a TrainJob":         {job: ofTrainJob},
		"while initializing": {job: ofTrainJob, state: State{Stage: Initializing}},
		"an MPIJob, gang":    {job: ofMPIJob, has: hasCoscheduling},
		"a TrainJob, gang":   {job: ofTrainJob, has: hasVolcano},
		"a TrainJob, group":  {job: ofTrainJob, has: hasNative},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := tc.plan(t)
			for _, object := range slices.Concat(plan.Ensure, podObjects(plan)) {
				for _, label := range namesMadeOf(object) {
					if faults := utilvalidation.IsDNS1123Label(label); len(faults) > 0 {
						t.Errorf("%s, of %d characters: %v", label, len(label), faults)
					}
				}
				if _, isService := object.(*corev1.Service); isService && len(utilvalidation.IsDNS1035Label(object.GetName())) > 0 {
					t.Errorf("%s is no name of a Service", object.GetName())
				}
				if faults := utilvalidation.IsDNS1123Subdomain(object.GetName()); len(faults) > 0 {
					t.Errorf("%s: %v", object.GetName(), faults)
				}
				wantLabelValues(t, describe(t, object), object.GetLabels())
			}
		})
	}
}

// Admission accepts the name of a retried job, and of a job that is retried again.
func TestRetryNamesAreAccepted(t *testing.T) {
	rules := validation.NewRules(config.Default(), false)
	faults := func(kind job.Kind, name string, workers int32) error {
		in := &validation.ClusterFacts{HasPriorityClass: func(string) bool { return true }}
		if kind == job.KindMPIJob {
			return rules.CreateMPIJob(mpiJobObject(named(name), replicas(workers)), in).Errors.ToAggregate()
		}
		trainJob, runtime := trainJobObjects(trainJobNamed(name), nodes(workers))
		in.Runtime = runtime
		return rules.CreateTrainJob(trainJob, in).Errors.ToAggregate()
	}
	for kind, counts := range map[job.Kind][]int32{job.KindMPIJob: {2, 100}, job.KindTrainJob: {1, 64}} {
		for _, workers := range counts {
			for length := 1; length <= kind.MaxNameLength(workers); length++ {
				name := strings.Repeat("n-", length)[:length-1] + "n"
				if err := faults(kind, name, workers); err != nil {
					t.Fatalf("%s %s with %d workers: %v", kind, name, workers, err)
				}
				for _, moment := range []int64{1789456789, 1789456790} {
					name = kind.RetryName(name, workers, moment)
					if err := faults(kind, name, workers); err != nil {
						t.Errorf("%s of %d characters and %d workers is restarted as %s: %v", kind, length, workers, name, err)
					}
				}
			}
			if longer := strings.Repeat("n", kind.MaxNameLength(workers)+1); faults(kind, longer, workers) == nil {
				t.Errorf("%s accepts %d characters with %d workers", kind, len(longer), workers)
			}
		}
	}
}

func wantLabelValues(t *testing.T, of string, labels map[string]string) {
	t.Helper()
	for key, value := range labels {
		if faults := utilvalidation.IsValidLabelValue(value); len(faults) > 0 {
			t.Errorf("label %s=%s of %s: %v", key, value, of, faults)
		}
	}
}

// namesMadeOf are the names of an object and the base names of its host names. JobSet's
// webhook also checks names that only its own controller would use.
func namesMadeOf(object gang.Object) []string {
	names := []string{object.GetName()}
	switch object := object.(type) {
	case *corev1.Pod:
		// The name of a pod may be longer: only its host name is in DNS.
		names = slices.DeleteFunc([]string{object.Spec.Hostname, object.Spec.Subdomain}, func(name string) bool { return name == "" })
	case *jobset.JobSet:
		names = append(names, object.Spec.Network.Subdomain)
		for _, replicated := range object.Spec.ReplicatedJobs {
			last := *replicated.Template.Spec.Completions - 1
			// JobSet counts the suffix of a pod's name.
			names = append(names, fmt.Sprintf("%s-%s-0", object.Name, replicated.Name), fmt.Sprintf("%s-%s-0-%d-abcde", object.Name, replicated.Name, last))
		}
	}
	return names
}

// The hostfile has the host names of the pods.
func TestHostsMatchPods(t *testing.T) {
	tests := map[string]struct {
		whole
		want []string
	}{
		"an MPIJob":      {whole{job: ofMPIJob()}, []string{"resnet-worker-0", "resnet-worker-1"}},
		"with launcher":  {whole{job: ofMPIJob(launcherRunsRanks)}, []string{"resnet-launcher", "resnet-worker-0", "resnet-worker-1"}},
		"launcher alone": {whole{job: ofMPIJob(launcherRunsRanks, noWorkers)}, []string{"resnet-launcher"}},
		"a TrainJob":     {whole{job: ofTrainJob(nodes(2))}, []string{"bert-worker-0-0", "bert-worker-0-1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := tc.plan(t)
			parsed, err := mpi.ParseHostfile(one[*corev1.ConfigMap](t, plan.Ensure).Data["hostfile"])
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, host := range parsed {
				got = append(got, host.Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
			called := calledHosts(plan)
			for _, host := range got {
				if !called[host] {
					t.Errorf("no pod is called %s; there are %v", host, called)
				}
			}
		})
	}
}

// calledHosts are the host names of all pods.
func calledHosts(plan Plan) map[string]bool {
	called := map[string]bool{}
	for _, pod := range plan.Pods {
		called[pod.Spec.Hostname] = pod.Spec.Subdomain == pod.Labels[training.LabelJobName]+"-worker"
	}
	return called
}

func TestPodNames(t *testing.T) {
	tests := map[string]struct {
		job                                       *job.Job
		restart                                   int32
		wantLauncher, wantWorker, wantInitializer string
	}{
		"an MPIJob":             {mpiJob(), 0, "resnet-launcher-r0", "resnet-worker-7", "resnet-initializer-r0"},
		"an MPIJob, restarted":  {mpiJob(), 2, "resnet-launcher-r2", "resnet-worker-7", "resnet-initializer-r2"},
		"a TrainJob":            {trainJob(), 0, "bert-launcher-0-0-r0", "bert-worker-0-7-r0", "bert-initializer-r0"},
		"a TrainJob, restarted": {trainJob(), 2, "bert-launcher-0-0-r2", "bert-worker-0-7-r2", "bert-initializer-r2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for role, want := range map[string]string{
				training.RoleLauncher: tc.wantLauncher, training.RoleWorker: tc.wantWorker, training.RoleInitializer: tc.wantInitializer,
			} {
				index := int32(0)
				if role == training.RoleWorker {
					index = 7
				}
				if got := PodName(tc.job, role, index, tc.restart); got != want {
					t.Errorf("the %s is called %s, want %s", role, got, want)
				}
			}
		})
	}
}

func TestRestartOf(t *testing.T) {
	for label, want := range map[string]int32{"0": 0, "12": 12, "": 0, "-1": 0, "many": 0, "99999999999": 0} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{training.LabelRestart: label}}}
		if got := RestartOf(pod); got != want {
			t.Errorf("restart %q is read as %d, want %d", label, got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

func quotaOf(amounts ...string) func(*ClusterFacts) {
	return func(in *ClusterFacts) {
		in.Quotas = []corev1.ResourceQuota{{Spec: corev1.ResourceQuotaSpec{Hard: list(amounts...)}}}
	}
}

// The pods of both kinds are called after their job.
func TestNameOfAnotherKind(t *testing.T) {
	other := func(kind job.Kind) func(*ClusterFacts) { return func(in *ClusterFacts) { in.OtherKind = kind } }
	wantFindings(t, rules().CreateMPIJob(mpiJob(), anywhere(other(job.KindTrainJob))),
		[]string{`metadata.name: Invalid value: "resnet": a TrainJob of this name already exists in the namespace, and their pods would have the same names; choose another name`}, nil)
	wantFindings(t, rules().CreateTrainJob(trainJob(), anywhere(withRuntime(), other(job.KindMPIJob))),
		[]string{`metadata.name: Invalid value: "bert": an MPIJob of this name already exists in the namespace, and their pods would have the same names; choose another name`}, nil)
}

// A job without pods is not measured against a quota that will have changed by
// the time it has some.
func TestQuotaOfJobsThatWait(t *testing.T) {
	const later = ", so the quota of the namespace is only checked when its pods are created"
	tests := map[string]struct {
		change func(*v2beta1.MPIJob)
		want   string
	}{
		"suspended":  {func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.Suspend = new(true) }, "the job is suspended"},
		"in a queue": {func(mpiJob *v2beta1.MPIJob) { mpiJob.Labels = map[string]string{training.LabelQueue: "team"} }, "the job waits in queue team"},
		"run for us": {func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ManagedBy = new(training.ManagedByMultiKueue) }, "the job is managed by kueue.x-k8s.io/multikueue"},
		"all of that": {func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Spec.RunPolicy.Suspend, mpiJob.Labels = new(true), map[string]string{training.LabelQueue: "team"}
		}, "the job is suspended"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wantFindings(t, rules().CreateMPIJob(mpiJob(tc.change), anywhere(quotaOf("pods", "0"))), nil, []string{"spec.mpiReplicaSpecs.Worker.replicas: " + tc.want + later})
			wantFindings(t, rules().CreateMPIJob(mpiJob(tc.change), anywhere()), nil, nil)
		})
	}
}

func TestQuotaTellsWhatWouldFit(t *testing.T) {
	tests := map[string]struct {
		changes []func(*v2beta1.MPIJob)
		in      []func(*ClusterFacts)
		want    string
	}{
		"fewer workers":            {changes: []func(*v2beta1.MPIJob){workers(9)}, in: []func(*ClusterFacts){quotaOf("pods", "6")}, want: "1. Reduce worker count to 5 (6 pods total)"},
		"not fewer than there may": {changes: []func(*v2beta1.MPIJob){workers(9)}, in: []func(*ClusterFacts){quotaOf("pods", "2")}, want: "1. No smaller worker count fits: 2 workers need 3 pods"},
		"one worker, where the launcher is the other": {
			changes: []func(*v2beta1.MPIJob){workers(9), launcherRunsRanks}, in: []func(*ClusterFacts){quotaOf("pods", "2")}, want: "1. Reduce worker count to 1 (2 pods total)",
		},
		"who has it": {
			in:   []func(*ClusterFacts){quotaOf("pods", "2"), func(in *ClusterFacts) { in.RunningJobs = func() int { return 7 } }},
			want: "Current usage: 0 pods (7 running jobs)",
		},
		"and nobody was asked": {in: []func(*ClusterFacts){quotaOf("pods", "2")}, want: "Current usage: 0 pods (0 running jobs)"},
		"the namespace's share": {
			in:   []func(*ClusterFacts){quotaOf("requests.ephemeral-storage", "1Gi"), defaultRequest("ephemeral-storage", "1Gi")},
			want: "Requested 3Gi ephemeral-storage (2 workers × 1Gi ephemeral-storage + launcher 1Gi ephemeral-storage)",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := rules().CreateMPIJob(mpiJob(tc.changes...), anywhere(tc.in...))
			if len(got.Errors) != 1 || got.Errors[0].Field != "spec.mpiReplicaSpecs.Worker.replicas" || !strings.Contains(got.Errors[0].Detail, tc.want) {
				t.Errorf("no fault that says %q: %v", tc.want, got.Errors)
			}
		})
	}
}

// Counting the running jobs costs something, so it is done only to be told.
func TestRunningJobsAreCountedOnlyIfShown(t *testing.T) {
	never := func(in *ClusterFacts) {
		in.RunningJobs = func() int {
			t.Error("the running jobs were counted")
			return 0
		}
	}
	wantFindings(t, rules().CreateMPIJob(mpiJob(), anywhere(quotaOf("pods", "3"), never)), nil, nil)
	wantFindings(t, rules().CreateTrainJob(trainJob(), anywhere(withRuntime(), quotaOf("pods", "3"), never)), nil, nil)
}

// A pod that names no class has the cluster's default, and its quota.
func TestQuotaOfTheDefaultPriorityClass(t *testing.T) {
	scoped := func(in *ClusterFacts) {
		quotaOf("pods", "2")(in)
		in.Quotas[0].Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"everyday"}},
		}}
	}
	everyday := func(in *ClusterFacts) { in.DefaultPriorityClass = "everyday" }
	high := func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.RunPolicy.SchedulingPolicy = &v2beta1.SchedulingPolicy{PriorityClass: "high"}
	}
	for name, tc := range map[string]struct {
		in         []func(*ClusterFacts)
		changes    []func(*v2beta1.MPIJob)
		wantFaults int
	}{
		"there is no default":        {in: []func(*ClusterFacts){scoped}},
		"the default is counted":     {in: []func(*ClusterFacts){scoped, everyday}, wantFaults: 1},
		"another class is somewhere": {in: []func(*ClusterFacts){scoped, everyday}, changes: []func(*v2beta1.MPIJob){high}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rules().CreateMPIJob(mpiJob(tc.changes...), anywhere(tc.in...)).Errors; len(got) != tc.wantFaults {
				t.Errorf("%d faults, want %d: %v", len(got), tc.wantFaults, got)
			}
		})
	}
}

// Faults of a role's resources stand where the user wrote them, or would.
func TestResourceErrorsHavePaths(t *testing.T) {
	in := anywhere(withRuntime(), func(in *ClusterFacts) {
		in.LimitRanges = []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Max: list("cpu", "500m")},
		}}}}
		in.LimitRanges[0].Name = "small"
	})
	said := func(container, amount string) []string {
		return []string{
			"container " + container + " has a limit of " + amount + " cpu; at most 500m is allowed (LimitRange small)",
			"container " + container + " requests " + amount + " cpu; at most 500m is allowed (LimitRange small)",
		}
	}
	at := func(path string, said []string) (faults []string) {
		for _, text := range said {
			faults = append(faults, path+": Forbidden: "+text)
		}
		return faults
	}
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) { launcherOf(mpiJob).Resources = limitsOf("cpu", "100m") })
	wantFindings(t, rules().CreateMPIJob(job, in), at(workerContainer+".resources", said("worker", "1")), nil)
	big := trainJob(func(trainJob *v2alpha1.TrainJob) {
		trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: new(limitsOf("cpu", "3"))}
	})
	wantFindings(t, rules().CreateTrainJob(big, in),
		append(at("spec.launcher.resources", said("launcher", "3")), at("spec.trainer.resourcesPerNode", said("worker", "1"))...), nil)
}

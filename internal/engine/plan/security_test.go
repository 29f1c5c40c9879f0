// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// violations are the violations of the Pod Security Standard "restricted" that
// Kubernetes finds.
func violations(t *testing.T) func(*corev1.PodTemplateSpec) []string {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	return func(template *corev1.PodTemplateSpec) (details []string) {
		for _, result := range evaluator.EvaluatePod(restricted, &template.ObjectMeta, &template.Spec) {
			if !result.Allowed {
				details = append(details, result.ForbiddenReason+": "+result.ForbiddenDetail)
			}
		}
		return details
	}
}

// Pod Security may refuse a pod for what its user wrote, but never for what the plan
// adds.
func TestPodsAreAsRestrictedAsTheirTemplates(t *testing.T) {
	violations, allowed := violations(t), 0
	everyJob(t, func(t *testing.T, tc planned) {
		for _, pod := range pods(tc.job(), tc.method) {
			if len(violations(&pod.model)) > 0 {
				continue
			}
			allowed++
			if details := violations(&pod.got); len(details) > 0 {
				t.Errorf("the %s's pod violates what its template does not:\n%s", pod.role, strings.Join(details, "\n"))
			}
		}
	})
	if allowed == 0 {
		t.Error("no template is restricted, so nothing was tested")
	}
}

// A job without security settings is fully restricted, with every scheduler and every
// delivery method.
func TestPodsAreRestrictedByDefault(t *testing.T) {
	violations := violations(t)
	silent := map[string]whole{
		"an MPIJob":                       {job: ofMPIJob()},
		"an MPIJob by an entrypoint":      {job: ofMPIJob(launcherCommand())},
		"an MPIJob with a read-only root": {job: ofMPIJob(both(readOnlyRoot), both(ownContainers))},
		"an MPIJob without workers":       {job: ofMPIJob(launcherRunsRanks, noWorkers)},
		"a TrainJob":                      {job: ofTrainJob()},
		"a TrainJob with data":            {job: ofTrainJob(fetches("s3://bucket/set", "pvc://archive"), newClaim("1Gi", ""))},
		"a TrainJob that fetches":         {job: ofTrainJob(fetches("s3://bucket/set", "pvc://archive"), newClaim("1Gi", "")), state: State{Stage: Initializing}},
		"a TrainJob with its own sshd":    {job: ofTrainJob(runtimeDoes(runsSSHD))},
		"a TrainJob with more containers": {job: ofTrainJob(runtimeDoes(ownContainers), runtimeDoes(ownScratch))},
		"a TrainJob by an entrypoint":     {job: ofTrainJob(withoutCommand)},
		"a TrainJob without a user":       {job: withoutUser(ofTrainJob())},
		"an MPIJob without a user":        {job: withoutUser(ofMPIJob())},
		"fetching, where users vary":      {job: withoutUser(ofTrainJob(fetches("s3://bucket/set", ""), claim("shared"))), state: State{Stage: Initializing}},
		"with data, where users vary":     {job: withoutUser(ofTrainJob(fetches("s3://bucket/set", ""), claim("shared")))},
		"an entrypoint without a user":    {job: withoutUser(ofMPIJob(launcherCommand()))},
	}
	for name, tc := range silent {
		t.Run(name, func(t *testing.T) {
			looked := 0
			for _, tc.method = range []Method{ImageVolume, InitContainer} {
				for _, tc.has = range everyGang {
					for name, pod := range podsOf(tc.plan(t)) {
						looked++
						if details := violations(&corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}); len(details) > 0 {
							t.Errorf("%s, by %s and %+v, violates:\n%s", name, tc.method, tc.has, strings.Join(details, "\n"))
						}
					}
				}
			}
			if looked < 8 {
				t.Errorf("only %d pods were checked", looked)
			}
		})
	}
}

// withoutUser is a job on OpenShift, where every namespace has its own UIDs.
func withoutUser(of func() *job.Job) func() *job.Job {
	return func() *job.Job {
		j := of()
		for _, role := range []*job.Role{&j.Launcher, &j.Worker} {
			role.Template.Spec.SecurityContext.RunAsUser = nil
		}
		return j
	}
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// largeJob is an MPIJob of about 1 MiB.
func largeJob(t testing.TB, namespace, name string) *v2beta1.MPIJob {
	t.Helper()
	job := &v2beta1.MPIJob{}
	if err := yaml.Unmarshal([]byte(named(jobview.MPIJobs, name)), job); err != nil {
		t.Fatal(err)
	}
	job.Namespace, job.Labels = namespace, map[string]string{"set": "large"}
	job.Spec.RunPolicy.Suspend = new(true)
	worker := &job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0]
	for i := range 1000 {
		worker.Env = append(worker.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: strings.Repeat("x", 1000)})
	}
	return job
}

// largeJobs: pages end at their size, and every job on them is whole.
func largeJobs(t *testing.T, world *world) {
	const count = 10
	for i := range count {
		create(t, world.admin, largeJob(t, world.ada.namespace, fmt.Sprintf("large-%02d", i)))
	}
	list := world.ada.jobs(jobview.MPIJobs) + "?limit=100&labelSelector=set%3Dlarge"
	read := func(next string) (*page, string) {
		body := world.wants(t, world.ada, "GET", list+"&continue="+url.QueryEscape(next), "", 200)
		return parsed[page](t, body), body
	}
	eventually.Succeeds(t, "all are listed", func() error {
		first, _ := read("")
		if left := first.Metadata.RemainingItemCount; left == nil || int(*left)+len(first.Items) != count {
			return fmt.Errorf("%d are, and %v on other pages", len(first.Items), left)
		}
		return nil
	})
	found, next := 0, ""
	for {
		got, body := read(next)
		if len(body) > jobwatch.MaxBytes+1<<20 || strings.Count(body, "SETTING_999") != len(got.Items) {
			t.Errorf("a page of %d jobs has %d bytes, and %d whole jobs", len(got.Items), len(body), strings.Count(body, "SETTING_999"))
		}
		found += len(got.Items)
		if next = got.Metadata.Continue; next == "" {
			break
		}
	}
	if found != count {
		t.Errorf("%d jobs of %d are listed", found, count)
	}
	one := world.wants(t, world.ada, "GET", world.ada.jobs(jobview.MPIJobs)+"/large-03", "", 200, "SETTING_999")
	if strings.Contains(one, "training.kubeflow.org/partial") {
		t.Error("a job is shown with a mark of the server's own")
	}
	world.wants(t, world.ada, "POST", world.ada.jobs(jobview.MPIJobs)+"/large-03/resume", "", 200, "SETTING_999")
	world.wants(t, world.bob, "GET", world.ada.jobs(jobview.MPIJobs)+"/large-03", "", 403)
	if err := world.admin.DeleteAllOf(t.Context(), &v2beta1.MPIJob{}, client.InNamespace(world.ada.namespace), client.MatchingLabels{"set": "large"}); err != nil {
		t.Fatal(err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// setPhase says how a job stands, as the operator would, and waits until the server
// knows.
func (world *world) setPhase(t testing.TB, by *person, kind *jobview.Kind, name string, phase training.Phase) {
	t.Helper()
	seen, err := kind.Get(t.Context(), world.admin, by.namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	switch job := seen.Object.(type) {
	case *v2alpha1.TrainJob:
		job.Status.Phase = phase
	case *v2beta1.MPIJob:
		job.Status.Phase = phase
	}
	if err := world.admin.Status().Update(t.Context(), seen.Object); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the server knows that "+name+" is "+string(phase), func() error {
		if got := world.ask(t, by, "GET", by.jobs(kind)+"/"+name+"/status", ""); !strings.Contains(got.body, `"phase":"`+string(phase)+`"`) {
			return fmt.Errorf("%d: %s", got.code, got.body)
		}
		return nil
	})
}

func jobsLive(t *testing.T, world *world) {
	for _, kind := range jobview.Kinds {
		t.Run(string(kind.Kind), func(t *testing.T) {
			ada, jobs := world.ada, world.ada.jobs(kind)
			for name, step := range map[string]func(*testing.T){
				"created": func(t *testing.T) {
					world.wants(t, ada, "POST", jobs, named(kind, "one"), 201, `"kind":"`+string(kind.Kind)+`"`, `"uid":"`, `"namespace":"team-ada"`)
					world.wants(t, ada, "POST", jobs, named(kind, "one"), 409, `"AlreadyExists"`, "Choose another name")
					world.wants(t, ada, "GET", jobs+"/one", "", 200, `"apiVersion":"kubeflow.org/`, `"name":"one"`)
					world.wants(t, ada, "GET", jobs+"/one/status", "", 200)
				},
				"tried": func(t *testing.T) {
					world.wants(t, ada, "POST", jobs+"?dryRun=All", named(kind, "tried"), 201, `"name":"tried"`)
					world.wants(t, ada, "GET", jobs+"/tried", "", 404, `"NotFound"`)
				},
				"as YAML": func(t *testing.T) {
					got := world.ask(t, ada, "POST", jobs, strings.ReplaceAll(named(kind, "as-yaml"), "\t", ""), "Content-Type", "application/yaml")
					if got.code != 201 {
						t.Errorf("%d: %s", got.code, got.body)
					}
				},
				"suspended and resumed": func(t *testing.T) {
					world.wants(t, ada, "POST", jobs, named(kind, "held"), 201)
					world.wants(t, ada, "POST", jobs+"/held/suspend", "", 200, `"suspend":true`)
					world.wants(t, ada, "POST", jobs+"/held/resume", "", 200, `"suspend":false`)
				},
				"restarted": func(t *testing.T) { world.restarted(t, kind) },
				"deleted": func(t *testing.T) {
					world.wants(t, ada, "POST", jobs, named(kind, "going"), 201)
					world.wants(t, ada, "DELETE", jobs+"/going?dryRun=All", "", 204)
					world.wants(t, ada, "GET", jobs+"/going", "", 200)
					if body := world.wants(t, ada, "DELETE", jobs+"/going?gracePeriodSeconds=30", "", 204); body != "" {
						t.Errorf("an answer without content has %q", body)
					}
					world.wants(t, ada, "DELETE", jobs+"/going", "", 404)
				},
				"looked at": func(t *testing.T) { world.lookedAt(t, kind) },
			} {
				t.Run(name, step)
			}
		})
	}
	t.Run("the spec alone", func(t *testing.T) {
		spec := `{"runtimeRef":{"kind":"ClusterTrainingRuntime","name":"mpi"},"trainer":{"image":"example"}}`
		world.wants(t, world.ada, "POST", world.ada.jobs(jobview.TrainJobs)+"?name=only-spec", spec, 201, `"name":"only-spec"`)
	})
}

func (world *world) restarted(t *testing.T, kind *jobview.Kind) {
	ada, jobs := world.ada, world.ada.jobs(kind)
	world.wants(t, ada, "POST", jobs, simpleJob(kind, `{"name":"broken","labels":{"kept":"yes"}}`), 201)
	world.setPhase(t, ada, kind, "broken", training.PhaseRunning)
	world.wants(t, ada, "POST", jobs+"/broken/restart", "", 400, string(kind.Kind)+" cannot be restarted (must be in Failed state)")
	world.setPhase(t, ada, kind, "broken", training.PhaseFailed)
	world.wants(t, ada, "POST", jobs+"/broken/suspend", "", 409, `"Finished"`)
	again := parsed[metav1.PartialObjectMetadata](t, world.wants(t, ada, "POST", jobs+"/broken/restart", "", 201))
	if !strings.HasPrefix(again.Name, "broken-retry-") || again.Labels["kept"] != "yes" {
		t.Errorf("it is %s with the labels %v", again.Name, again.Labels)
	}
	world.wants(t, ada, "GET", jobs+"/"+again.Name, "", 200)
	eventually.Succeeds(t, "the failed job is gone", func() error {
		if got := world.ask(t, ada, "GET", jobs+"/broken", ""); got.code != 404 {
			return fmt.Errorf("%d: %s", got.code, got.body)
		}
		return nil
	})
}

func (world *world) lookedAt(t *testing.T, kind *jobview.Kind) {
	ada, one := world.ada, world.ada.jobs(kind)+"/seen"
	job := parsed[metav1.PartialObjectMetadata](t, world.wants(t, ada, "POST", ada.jobs(kind), named(kind, "seen"), 201))
	world.wants(t, ada, "GET", one+"/events", "", 200, `{"events":[]}`)
	create(t, world.admin, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: ada.namespace, GenerateName: "seen-"}, Type: "Warning", Reason: "Noted", Message: "what was noted", Source: corev1.EventSource{Component: "test"},
		InvolvedObject: corev1.ObjectReference{APIVersion: kind.GVK.GroupVersion().String(), Kind: string(kind.Kind), Namespace: ada.namespace, Name: "seen", UID: job.UID},
	})
	world.wants(t, ada, "GET", one+"/events", "", 200, "what was noted", `"source":"test"`)
	world.wants(t, ada, "GET", one+"/diagnose", "", 200, `"name":"seen"`, `"findings":[`)
	world.wants(t, ada, "GET", one+"/metrics?timeRange=6h", "", 200, `"source":`, `"workers":[]`)
	world.wants(t, ada, "GET", one+"/logs", "", 404, `"NoPods"`)
	world.wants(t, ada, "GET", one+"/logs/launcher", "", 404, `"NoPods"`)
	world.wants(t, ada, "GET", one+"/logs/worker/0", "", 404, `"NoPods"`)
	world.wants(t, ada, "GET", one+"/logs/worker/first", "", 400, "invalid worker index: first")
	flat := "/api/v1/" + kind.Plural + "/seen"
	world.wants(t, ada, "GET", flat+"?namespace="+ada.namespace, "", 200, `"name":"seen"`)
	world.wants(t, ada, "GET", flat+"/status?namespace="+ada.namespace, "", 200)
	world.wants(t, ada, "GET", flat, "", 400, "namespace: is required")
}

// places: what namespaces have, and what TrainJobs are made from.
func places(t *testing.T, world *world) {
	ada, here := world.ada, "/api/v1/namespaces/"+world.ada.namespace
	create(t, world.admin, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ada.namespace, Name: "empty"}})
	for _, runtime := range []client.Object{
		&v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "of-all"}, Spec: runtimeSpec(t)},
		&v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: ada.namespace, Name: "of-ada"}, Spec: runtimeSpec(t)},
		&v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: world.bob.namespace, Name: "of-bob"}, Spec: runtimeSpec(t)},
	} {
		create(t, world.admin, runtime)
	}
	world.wants(t, ada, "GET", here+"/quota", "", 200, `"name":"empty","hard":{},"used":{}`, `"activeJobs":`)
	world.countsActive(t)
	world.wants(t, ada, "GET", here+"/preflight", "", 200, `"checks":[`)
	world.wants(t, ada, "POST", here+"/preflight", named(jobview.MPIJobs, "imagined"), 200, `"name":"imagined"`, `"checks":[`)
	world.wants(t, ada, "GET", ada.jobs(jobview.MPIJobs)+"/imagined", "", 404)
	for path, wanted := range map[string][]string{
		"/api/v1/clustertrainingruntimes":          {"of-all"},
		here + "/clustertrainingruntimes":          {"of-all", "of-ada"},
		here + "/trainingruntimes":                 {"of-ada"},
		here + "/trainingruntimes?framework=mpi":   {"of-ada"},
		here + "/trainingruntimes?framework=other": {},
	} {
		body := world.wants(t, ada, "GET", path, "", 200)
		for _, name := range []string{"of-all", "of-ada", "of-bob"} {
			is := strings.Contains(body, `"name":"`+name+`"`)
			wants := strings.Contains(strings.Join(wanted, " "), name)
			if is != wants {
				t.Errorf("%s has %s: %t, want %t: %s", path, name, is, wants, body)
			}
		}
		if len(wanted) == 0 && strings.TrimSpace(body) != `{"items":[]}` {
			t.Errorf("%s is %s", path, body)
		}
	}
	world.wants(t, ada, "GET", "/api/v1/clustertrainingruntimes/of-all", "", 200, `"kind":"ClusterTrainingRuntime"`, `"spec":{`)
	world.wants(t, ada, "GET", here+"/trainingruntimes/of-ada", "", 200, `"kind":"TrainingRuntime"`, `"namespace":"team-ada"`)
	world.wants(t, ada, "GET", here+"/trainingruntimes/of-bob", "", 404)
}

// countsActive: a job counts from when it is created until it has ended.
func (world *world) countsActive(t *testing.T) {
	t.Helper()
	ada, jobs := world.ada, world.ada.jobs(jobview.MPIJobs)
	active := func() int {
		return parsed[struct{ ActiveJobs int }](t, world.wants(t, ada, "GET", "/api/v1/namespaces/"+ada.namespace+"/quota", "", 200)).ActiveJobs
	}
	// What others have left behind must not end meanwhile.
	before, since := -1, time.Time{}
	eventually.Succeeds(t, "nothing changes for a second", func() error {
		if now := active(); now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return fmt.Errorf("%d were active a moment ago", before)
		}
		return nil
	})
	world.wants(t, ada, "POST", jobs, named(jobview.MPIJobs, "counted"), 201)
	for _, step := range []struct {
		phase training.Phase
		want  int
	}{{"", before + 1}, {training.PhaseRunning, before + 1}, {training.PhaseSucceeded, before}} {
		if step.phase != "" {
			world.setPhase(t, ada, jobview.MPIJobs, "counted", step.phase)
		}
		eventually.Succeeds(t, fmt.Sprintf("%d jobs are active when the new one is %q", step.want, step.phase), func() error {
			if found := active(); found != step.want {
				return fmt.Errorf("%d are", found)
			}
			return nil
		})
	}
}

// runtimeSpec is that of a runtime which is shipped.
func runtimeSpec(t *testing.T) v2alpha1.TrainingRuntimeSpec {
	t.Helper()
	var runtime v2alpha1.ClusterTrainingRuntime
	if err := yaml.Unmarshal(deployed.Read(t, filepath.Join(deployed.Repository(), "charts/trireme/files/runtimes/mpi-openmpi-cpu.yaml")), &runtime); err != nil {
		t.Fatal(err)
	}
	return runtime.Spec
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

func itemsOf(list client.ObjectList) int { return meta.LenList(list) }

// reads are all ways to look at a job.
var reads = []string{"", "/status", "/events", "/metrics", "/diagnose", "/logs", "/logs/launcher", "/logs/worker/0", "/logs?follow=true"}

// othersJobs: nobody learns anything of a job in another's namespace, by whichever way.
func othersJobs(t *testing.T, world *world) {
	const secret = "known-to-bob-alone"
	for _, kind := range jobview.Kinds {
		world.wants(t, world.bob, "POST", world.bob.jobs(kind), strings.ReplaceAll(named(kind, "of-bob"), "example", secret), 201)
		jobs, flat := world.bob.jobs(kind), "/api/v1/"+kind.Plural
		var asked [][2]string
		for _, name := range []string{"of-bob", "not-there"} {
			for _, read := range reads {
				way := "?"
				if strings.Contains(read, "?") {
					way = "&"
				}
				asked = append(asked, [2]string{"GET", jobs + "/" + name + read}, [2]string{"GET", flat + "/" + name + read + way + "namespace=" + world.bob.namespace})
			}
			for _, action := range []string{"restart", "suspend", "resume"} {
				asked = append(asked, [2]string{"POST", jobs + "/" + name + "/" + action})
			}
			asked = append(asked, [2]string{"DELETE", jobs + "/" + name}, [2]string{"DELETE", jobs + "/" + name + "?dryRun=All"})
		}
		for _, list := range []string{
			jobs, jobs + "?fieldSelector=metadata.name%3Dof-bob", jobs + "?search=of-bob&limit=1", flat + "?namespace=" + world.bob.namespace,
			"/api/v1/watch/namespaces/" + world.bob.namespace + "/" + kind.Plural, "/api/v1/watch/namespaces/" + world.bob.namespace + "/" + kind.Plural + "?name=of-bob",
		} {
			asked = append(asked, [2]string{"GET", list})
		}
		for _, path := range []string{"/quota", "/trainingruntimes", "/clustertrainingruntimes", "/trainingruntimes/of-bob"} {
			asked = append(asked, [2]string{"GET", "/api/v1/namespaces/" + world.bob.namespace + path})
		}
		for _, one := range asked {
			got := world.ask(t, world.ada, one[0], one[1], "", "Accept", "text/event-stream")
			if got.code != 403 || strings.Contains(got.body, secret) {
				t.Errorf("%s %s: %d: %s", one[0], one[1], got.code, got.body)
			}
		}
		world.wants(t, world.ada, "POST", jobs, named(kind, "intruder"), 403, "create", kind.Plural)
		world.wants(t, world.ada, "POST", jobs+"?dryRun=All", named(kind, "intruder"), 403)
		for _, body := range []string{
			world.wants(t, world.ada, "GET", "/api/v1/namespaces/"+world.bob.namespace+"/preflight", "", 200),
			world.wants(t, world.ada, "GET", flat, "", 200), world.wants(t, world.ada, "GET", flat+"?fieldSelector=metadata.name%3Dof-bob", "", 200),
		} {
			if strings.Contains(body, secret) || strings.Contains(body, "of-bob") {
				t.Errorf("it tells of Bob's job: %s", body)
			}
		}
		world.wants(t, world.bob, "GET", jobs+"/of-bob", "", 200, secret)
	}
}

// keptStays: jobs in memory are shared by all who read them, so nobody may change them.
func keptStays(t *testing.T, world *world) {
	for _, kind := range jobview.Kinds {
		world.wants(t, world.ada, "POST", world.ada.jobs(kind), named(kind, "kept"), 201)
	}
	before := world.kept(t)
	for range 5 {
		for _, kind := range jobview.Kinds {
			for _, read := range reads[:len(reads)-1] {
				world.ask(t, world.ada, "GET", world.ada.jobs(kind)+"/kept"+read, "")
			}
			for _, query := range []string{"", "?sort=-creationTime&limit=3", "?status=Submitted"} {
				world.wants(t, world.ada, "GET", world.ada.jobs(kind)+query, "", 200)
			}
			world.wants(t, world.ada, "GET", "/api/v1/namespaces/"+world.ada.namespace+"/quota", "", 200)
			world.wants(t, world.ada, "POST", world.ada.jobs(kind)+"/kept/suspend", "", 200)
			world.wants(t, world.ada, "POST", world.ada.jobs(kind)+"/kept/resume", "", 200)
		}
	}
	for object, was := range before {
		if is := encoded(t, object); is != was {
			t.Errorf("%s has changed in memory: %s", object.GetName(), cmp.Diff(was, is))
		}
	}
}

// kept are the objects in the server's memory, and what they are now.
func (world *world) kept(t *testing.T) map[client.Object]string {
	t.Helper()
	found := map[client.Object]string{}
	for _, kind := range jobview.Kinds {
		page, err := world.cache.List(t.Context(), kind, jobwatch.Query{Limit: jobwatch.MaxLimit, Whole: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range page.Entries {
			found[entry.Object] = encoded(t, entry.Object)
		}
	}
	if len(found) == 0 {
		t.Fatal("nothing is kept")
	}
	return found
}

func encoded(t *testing.T, object client.Object) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// justCreated: whoever has created a job can read it at once.
func justCreated(t *testing.T, world *world) {
	for number := range 20 {
		kind := jobview.Kinds[number%2]
		name := fmt.Sprintf("fresh-%d", number)
		world.wants(t, world.ada, "POST", world.ada.jobs(kind), named(kind, name), 201)
		for _, read := range []string{"", "/status", "/events", "/diagnose"} {
			body := world.wants(t, world.ada, "GET", world.ada.jobs(kind)+"/"+name+read, "", 200)
			if strings.Contains(body, "managedFields") {
				t.Errorf("%s has what nobody asks for: %s", name, body)
			}
		}
	}
}

// nothingMadeUp: what only the cluster can say of a job is not taken from clients.
func nothingMadeUp(t *testing.T, world *world) {
	for _, kind := range jobview.Kinds {
		submitted := simpleJob(kind, `{"generateName":"made-up-","uid":"12345678-1234-1234-1234-123456789012","resourceVersion":"7","generation":9,
			"creationTimestamp":"2001-01-01T00:00:00Z","deletionTimestamp":"2001-01-01T00:00:00Z","managedFields":[{"manager":"me","operation":"Update"}],"labels":{"a":"b"}}`)
		submitted = submitted[:len(submitted)-1] + `,"status":{"phase":"Succeeded","readyWorkers":"7/7"}}`
		for _, query := range []string{"?dryRun=All", ""} {
			body := world.wants(t, world.ada, "POST", world.ada.jobs(kind)+query, submitted, 201)
			for _, wrong := range []string{"Succeeded", "7/7", "12345678", "2001", "managedFields", "deletionTimestamp"} {
				if strings.Contains(body, wrong) {
					t.Errorf("%s%s says %s: %s", kind.Kind, query, wrong, body)
				}
			}
		}
	}
}

// auditHasEveryChange: one line a change, with the name that was made; none for what
// was only tried.
func auditHasEveryChange(t *testing.T, world *world) {
	jobs := world.ada.jobs(jobview.MPIJobs)
	made := parsed[metav1.PartialObjectMetadata](t, world.wants(t, world.ada, "POST", jobs, simpleJob(jobview.MPIJobs, `{"generateName":"audited-"}`), 201)).Name
	world.wants(t, world.ada, "POST", jobs+"/"+made+"/suspend", "", 200)
	world.wants(t, world.ada, "DELETE", jobs+"/"+made+"?dryRun=All", "", 204)
	world.wants(t, world.bob, "DELETE", jobs+"/"+made, "", 403)
	world.wants(t, world.ada, "GET", jobs+"/"+made, "", 200)
	world.wants(t, world.ada, "DELETE", jobs+"/"+made, "", 204)
	world.wants(t, world.ada, "POST", jobs+"?dryRun=All", named(jobview.MPIJobs, "audited-try"), 201)
	world.wants(t, world.ada, "POST", jobs+"?dryRun=All", strings.Replace(named(jobview.MPIJobs, "audited-try"), `"spec":{`, `"spec":{"x":1,`, 1), 400)
	var found []string
	for _, line := range append(world.audit.About(t, made), world.audit.About(t, "audited-try")...) {
		found = append(found, fmt.Sprintf("%s %s %s/%s %v %s", line["user"], line["verb"], line["namespace"], line["kind"], line["code"], line["result"]))
	}
	const ada, bob = "system:serviceaccount:team-ada:ada", "system:serviceaccount:team-bob:bob"
	want := []string{
		ada + " create team-ada/MPIJob 201 done", ada + " patch team-ada/MPIJob 200 done", bob + " delete team-ada/MPIJob 403 refused", ada + " delete team-ada/MPIJob 204 done",
	}
	if difference := cmp.Diff(want, found); difference != "" {
		t.Error(difference)
	}
	for line := range strings.Lines(world.audit.String()) {
		if len(line) > 4096 {
			t.Errorf("a line has %d bytes: %.200s", len(line), line)
		}
	}
}

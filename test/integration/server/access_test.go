// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/auth"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/surface"
)

// routes are all that the server's own document has.
func routes(t *testing.T, program *program) []surface.Route {
	t.Helper()
	return surface.Routes(t, []byte(ask(t, http.MethodGet, program.url+"/openapi.json", "", nil).body))
}

// Every route is tried without a token, with a wrong one, and across the border of a
// namespace.
func TestNobodyCrossesTheBorder(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane, max := cluster.person(t, "jane"), cluster.person(t, "max")
	program := cluster.startServer(t, "--requests-per-second=10000", "--burst=10000", "--unauthenticated-burst=10000")
	for _, kind := range []struct{ resource, body string }{{"mpijobs", simpleMPIJob("secret-plan")}, {"trainjobs", simpleTrainJob("secret-plan")}} {
		if got := ask(t, http.MethodPost, program.url+"/api/v1/namespaces/"+max.namespace+"/"+kind.resource, max.token, strings.NewReader(kind.body)); got.code != 201 {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	eventually.Succeeds(t, "the cache knows the jobs", func() error {
		if got := ask(t, http.MethodGet, program.url+"/api/v1/namespaces/"+max.namespace+"/trainjobs/secret-plan", max.token, nil); got.code != 200 {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	for _, route := range routes(t, program) {
		t.Run(route.Method+" "+route.Path, func(t *testing.T) {
			for who, token := range map[string]string{"nobody": "", "somebody with a wrong token": "abc"} {
				path, body := route.In(max.namespace, "secret-plan")
				if got := ask(t, route.Method, program.url+path, token, body, "Accept", "text/event-stream, application/json"); got.code != 401 || len(got.told.Suggestions) == 0 {
					t.Errorf("%s: %d %s", who, got.code, got.body)
				}
			}
			path, body := route.In(max.namespace, "secret-plan")
			got := ask(t, route.Method, program.url+path, jane.token, body, "Accept", "text/event-stream, application/json")
			if strings.Contains(got.body, "secret-plan") && got.code < 400 {
				t.Errorf("the job of somebody else is told: %s", got.body)
			}
			if route.ForCluster() {
				return
			}
			if strings.HasSuffix(route.Path, "/preflight") {
				// It tells what one may not do, and nothing of what is there.
				if got.code != 200 || !strings.Contains(got.body, "You may not create trainjobs") {
					t.Errorf("%d %s", got.code, got.body)
				}
				return
			}
			if got.code != 403 || !strings.Contains(got.told.Message, jane.user()) || !strings.Contains(got.told.Message, max.namespace) || len(got.told.Suggestions) == 0 {
				t.Errorf("%d %s", got.code, got.body)
			}
		})
	}
	t.Run("a list of all namespaces has only one's own", func(t *testing.T) {
		for _, resource := range []string{"mpijobs", "trainjobs"} {
			if got := ask(t, http.MethodGet, program.url+"/api/v1/"+resource, jane.token, nil); strings.Contains(got.body, "secret-plan") {
				t.Errorf("%d %s", got.code, got.body)
			}
		}
	})
	want := fmt.Sprintf("User %q may not list mpijobs.kubeflow.org in namespace %q", jane.user(), max.namespace)
	if got := ask(t, http.MethodGet, program.url+"/api/v1/namespaces/"+max.namespace+"/mpijobs", jane.token, nil); got.told.Message != want {
		t.Errorf("%s\nwant\n%s", got.told.Message, want)
	}
}

// Every call that was to change something is in the audit once, whether or not it
// did.
func TestAuditOfTheProgram(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane, max := cluster.person(t, "jane"), cluster.person(t, "max")
	program := cluster.startServer(t)
	jobs := program.url + "/api/v1/namespaces/" + jane.namespace + "/mpijobs"
	for _, call := range []struct {
		method, url, token, body string
		code                     int
	}{
		{"POST", jobs, jane.token, simpleMPIJob("hello"), 201},
		{"POST", jobs, jane.token, simpleMPIJob("hello"), 409},
		{"POST", jobs + "?dryRun=All", jane.token, simpleMPIJob("other"), 201},
		{"POST", jobs, max.token, simpleMPIJob("mine"), 403},
		{"POST", jobs, "", simpleMPIJob("mine"), 401},
		{"POST", jobs, jane.token, `{"spec":7}`, 400},
		{"POST", jobs, jane.token, strings.Repeat("x", 10<<20), 413},
		{"GET", jobs, jane.token, "", 200},
		{"DELETE", jobs + "/hello", max.token, "", 403},
		{"DELETE", jobs + "/hello", jane.token, "", 204},
	} {
		if got := ask(t, call.method, call.url, call.token, strings.NewReader(call.body)); got.code != call.code {
			t.Errorf("%s %s: %d %s, want %d", call.method, call.url, got.code, got.body, call.code)
		}
	}
	want := []string{
		"jane create hello 201", "jane create hello 409", "max create mine 403", " create  401", "jane create  400", " create  413",
		"max delete hello 403", "jane delete hello 204",
	}
	// The line of a call follows its answer.
	eventually.Succeeds(t, "every call has its line", func() error {
		if got := strings.Count(program.audit.String(), "\n"); got < len(want) {
			return fmt.Errorf("%d lines", got)
		}
		return nil
	})
	var got []string
	for line := range strings.Lines(program.audit.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if entry["namespace"] != jane.namespace || entry["source"] != "127.0.0.1" {
			t.Errorf("where, and from where? %s", line)
		}
		user, _ := entry["user"].(string)
		got = append(got, fmt.Sprintf("%s %s %s %v", user[strings.LastIndex(user, ":")+1:], entry["verb"], entry["name"], entry["code"]))
		if strings.Contains(line, jane.token) || strings.Contains(line, max.token) {
			t.Error("a token is in the audit")
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
	if strings.Contains(program.log.String(), jane.token) {
		t.Error("a token is in the log")
	}
}

// What the guard remembers gets old: with its clock in the test's hands, nobody waits
// for it.
func TestAnswersGetOld(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane := cluster.person(t, "jane")
	clock := clocktesting.NewFakePassiveClock(time.Now())
	guard, err := auth.NewInCluster(cluster.server, nil, clock)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+jane.token)
	caller, err := guard.Identify(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	list := auth.Permission{Verb: "list", Group: "kubeflow.org", Resource: "mpijobs", Namespace: jane.namespace}
	if err := guard.Allow(t.Context(), caller, list); err != nil {
		t.Fatal(err)
	}
	cluster.takeRights(t, jane)
	cluster.revoke(t, jane)
	for what, err := range map[string]error{"the right": guard.Allow(t.Context(), caller, list), "the token": guard.StillValid(t.Context(), caller)} {
		if err != nil {
			t.Errorf("%s was asked for again at once: %v", what, err)
		}
	}
	// The API server itself remembers both for some seconds.
	for what, holds := range map[string]func() error{
		"the right": func() error { return guard.Allow(t.Context(), caller, list) },
		"the token": func() error { _, err := guard.Identify(t.Context(), request); return err },
	} {
		eventually.Succeeds(t, what+" is gone", func() error {
			clock.SetTime(clock.Now().Add(30 * time.Second))
			if err := holds(); err == nil {
				return fmt.Errorf("it still holds")
			}
			return nil
		})
	}
	if err := guard.StillValid(t.Context(), caller); apierror.From(err).Code != http.StatusUnauthorized {
		t.Errorf("a stream of a revoked token goes on: %v", err)
	}
}

// A token that is revoked gets nothing any more within a minute, and its streams end.
func TestRevokedTokenEndsItsStreams(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane, max := cluster.person(t, "jane"), cluster.person(t, "max")
	program := cluster.startServer(t)
	// One connection for many, and one for each: what ends a stream differs.
	over := map[string]*http.Client{"HTTP/2.0": insecure, "HTTP/1.1": clientOver1()}
	open := func(person *person, protocol string) <-chan string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, program.url+"/api/v1/watch/namespaces/"+person.namespace+"/mpijobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+person.token)
		request.Header.Set("Accept", "text/event-stream")
		response, err := over[protocol].Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if response.StatusCode != 200 || response.Proto != protocol {
			t.Fatal(response.Proto, response.Status)
		}
		all := make(chan string, 1)
		go func() { content, _ := io.ReadAll(response.Body); all <- string(content) }()
		return all
	}
	janes, maxes := map[string]<-chan string{}, map[string]<-chan string{}
	for protocol := range over {
		janes[protocol], maxes[protocol] = open(jane, protocol), open(max, protocol)
	}
	connection := program.dial(t)
	janes["gRPC"], maxes["gRPC"] = watchOverRPC(t, connection, jane), watchOverRPC(t, connection, max)
	cluster.revoke(t, jane)
	minute := time.After(time.Minute)
	for protocol, stream := range janes {
		select {
		case content := <-stream:
			if !strings.Contains(content, `"code":401`) && !strings.Contains(content, "code = Unauthenticated") {
				t.Errorf("the stream over %s does not say why it ends:\n%s", protocol, content)
			}
		case <-minute:
			t.Fatalf("the stream over %s of a revoked token goes on", protocol)
		}
	}
	if got := ask(t, http.MethodGet, program.url+"/api/v1/namespaces/"+jane.namespace+"/mpijobs", jane.token, nil); got.code != 401 {
		t.Errorf("a revoked token gets %d", got.code)
	}
	for protocol, stream := range maxes {
		select {
		case content := <-stream:
			t.Errorf("somebody else's stream over %s has ended, too:\n%s", protocol, content)
		default:
		}
	}
}

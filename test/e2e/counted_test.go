// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// jobResources are what jobs are made of.
var jobResources = []string{
	"trainjobs", "mpijobs", "pods", "jobs", "jobsets", "services", "configmaps", "secrets", "controllerrevisions", "podgroups",
	"networkpolicies", "persistentvolumeclaims", "events",
}

// counts are requests, by what they were about.
type counts map[string]int

// since is what has come to it since an earlier count.
func (now counts) since(earlier counts) counts {
	more := counts{}
	for what, count := range now {
		if grown := count - earlier[what]; grown != 0 {
			more[what] = grown
		}
	}
	return more
}

func (now counts) total() (sum int) {
	for _, count := range now {
		sum += count
	}
	return sum
}

func (now counts) String() string {
	parts := []string{}
	for _, what := range slices.Sorted(maps.Keys(now)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, now[what]))
	}
	return strings.Join(parts, ", ")
}

var (
	metricLine  = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)
	metricLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// metricOf calls for every line of one of the API server's metrics.
func metricOf(t testing.TB, name string, visit func(labels map[string]string, value int)) {
	t.Helper()
	client, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(context.Background())
	if err != nil {
		t.Fatalf("read the API server's metrics: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		found := metricLine.FindStringSubmatch(strings.TrimSpace(line))
		if found == nil || found[1] != name {
			continue
		}
		labels := map[string]string{}
		for _, label := range metricLabel.FindAllStringSubmatch(found[2], -1) {
			labels[label[1]] = label[2]
		}
		value, err := strconv.ParseFloat(found[3], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		visit(labels, int(value))
	}
}

// jobWrites are the requests by anybody that were to change what jobs are made
// of, by verb and resource, whether they were allowed or not, but for events that are not found.
func jobWrites(t testing.TB) counts {
	t.Helper()
	found := counts{}
	metricOf(t, "apiserver_request_total", func(labels map[string]string, value int) {
		switch labels["verb"] {
		case "GET", "LIST", "WATCH", "CONNECT":
			return
		}
		if !slices.Contains(jobResources, labels["resource"]) {
			return
		}
		// Whoever ends a series of events does so minutes later, and does not find them if
		// their namespace is gone: those of earlier tests are.
		if labels["resource"] == "events" && labels["code"] == "404" {
			return
		}
		what := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			what += "/" + labels["subresource"]
		}
		found[what] += value
	})
	return found
}

// untilAtRest waits until nothing is written for a while.
func untilAtRest(t testing.TB, count func(testing.TB) counts) {
	t.Helper()
	const quiet = 5 * time.Second
	before, since := count(t), time.Now()
	for deadline := time.Now().Add(2 * time.Minute); time.Since(since) < quiet; time.Sleep(time.Second) {
		now := count(t)
		more := now.since(before)
		if more.total() > 0 {
			before, since = now, time.Now()
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are still writes: %s", more)
		}
	}
}

const operatorSchemas = "operator-writes-"

// countOperatorWrites makes the API server count what the operator alone writes.
// Its metrics do not say who asked, but they say by which flow schema a request
// came: there is one for each resource here. The requests get the priority that
// they have without it.
func countOperatorWrites(t testing.TB) {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range jobResources {
		schema := &flowcontrolv1.FlowSchema{
			ObjectMeta: metav1.ObjectMeta{Name: operatorSchemas + resource},
			Spec: flowcontrolv1.FlowSchemaSpec{
				MatchingPrecedence:         5000,
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "workload-low"},
				Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
					Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
						ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "trireme-system", Name: "trireme-operator"}}},
					ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
						Verbs: []string{"create", "update", "patch", "delete", "deletecollection"}, APIGroups: []string{"*"},
						Resources: []string{resource, resource + "/status"}, Namespaces: []string{"*"}, ClusterScope: true,
					}},
				}},
			},
		}
		if err := api.Create(context.Background(), schema); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), schema) })
		awaitSchema(t, api, schema)
	}
}

// awaitSchema waits until the API server goes by a flow schema.
func awaitSchema(t testing.TB, api client.Client, schema *flowcontrolv1.FlowSchema) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err := api.Get(context.Background(), client.ObjectKeyFromObject(schema), schema); err != nil {
			t.Fatal(err)
		}
		for _, condition := range schema.Status.Conditions {
			if condition.Type == flowcontrolv1.FlowSchemaConditionDangling && condition.Status == flowcontrolv1.ConditionFalse {
				return
			}
		}
	}
	t.Fatalf("the API server does not take FlowSchema %s: %+v", schema.Name, schema.Status)
}

// operatorWrites are the requests of the operator that were to change something,
// by resource.
func operatorWrites(t testing.TB) counts {
	t.Helper()
	found := counts{}
	metricOf(t, "apiserver_flowcontrol_dispatched_requests_total", func(labels map[string]string, value int) {
		if resource, ours := strings.CutPrefix(labels["flow_schema"], operatorSchemas); ours {
			found[resource] += value
		}
	})
	return found
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/training"
)

func contains(text, word string) bool { return strings.Contains(text, word) }

// Nothing is found where nothing is wrong.
func TestHealthyJobs(t *testing.T) {
	for kind, model := range kinds() {
		for name, change := range map[string]func(*Facts){"waits": func(*Facts) {}, "runs": runs, "succeeded": succeeds} {
			if findings := Diagnose(pending(model, change)); len(findings) > 0 {
				t.Errorf("%s that %s: %+v", kind, name, findings)
			}
		}
		report := Preflight(submitted(model))
		if report.Passed != report.Total || report.Total != len(beforeSubmission) || report.Number(OK) != report.Total {
			t.Errorf("%s: %+v", kind, report)
		}
	}
	namespaceAlone := submitted(kinds()["MPIJob"], func(facts *Facts) { facts.Job, facts.Name, facts.Kind = nil, "", "" })
	if report := Preflight(namespaceAlone); report.Number(OK) != len(forNamespace) || report.Total != len(forNamespace) {
		t.Errorf("a namespace: %+v", report)
	}
}

// What may not be read is not known, and nothing is made up about it.
func TestNothingIsKnown(t *testing.T) {
	forget := func(facts *Facts) {
		for _, unknown := range []*string{
			&facts.NamespaceObject.Unknown, &facts.Pods.Unknown, &facts.Events.Unknown, &facts.Quotas.Unknown, &facts.Policies.Unknown, &facts.Nodes.Unknown, &facts.Used.Unknown,
			&facts.Service.Unknown, &facts.Endpoints.Unknown, &facts.Deployment.Unknown, &facts.Lease.Unknown, &facts.PodGroups.Unknown,
			&facts.Submission.Rules.Unknown, &facts.Submission.Permissions.Unknown,
		} {
			*unknown = "may not list anything"
		}
		facts.NamespaceObject.Value, facts.Pods.Value, facts.Nodes.Value, facts.Service.Value, facts.Endpoints.Value, facts.Deployment.Value, facts.Lease.Value = nil, nil, nil, nil, nil, nil, nil
	}
	for kind, model := range kinds() {
		findings := Diagnose(pending(model, forget))
		if len(findings) < 5 {
			t.Errorf("%s: only %d findings", kind, len(findings))
		}
		for _, finding := range findings {
			if finding.Rank != NotKnown {
				t.Errorf("%s: %+v", kind, finding)
			}
		}
		if report := Preflight(submitted(model, forget)); report.Number(Fail)+report.Number(Warning) > 0 || report.Number(Unknown) < 5 {
			t.Errorf("%s: %+v", kind, report)
		}
	}
}

func TestTheMostLikelyCauseComesFirst(t *testing.T) {
	findings := []Finding{{Rank: NotKnown, Title: "a"}, {Rank: Possible, Title: "b"}, {Rank: Cause, Title: "c"}, {Rank: Likely, Title: "d"}, {Rank: Possible, Title: "e"}, {Rank: Certain, Title: "f"}, {Rank: Note, Title: "g"}}
	sortByRank(findings)
	if diff := cmp.Diff([]string{"cause: c", "certain: f", "likely: d", "possible: b", "possible: e", "note: g", "not known: a"}, inBrief(findings)); diff != "" {
		t.Error(diff)
	}
}

func TestRanksAreWords(t *testing.T) {
	for rank := Cause; rank <= NotKnown; rank++ {
		text, err := json.Marshal(rank)
		var read Rank
		if err != nil || json.Unmarshal(text, &read) != nil || read != rank || rank.Blocks() != (rank <= Likely) {
			t.Errorf("%s becomes %s, %v", rank, read, err)
		}
	}
	if err := json.Unmarshal([]byte(`"sure"`), new(Rank)); err == nil || !contains(err.Error(), "the ranks are cause, certain") {
		t.Errorf("%v", err)
	}
}

// A job that has got past something is not held by it; one that failed for it was.
func TestRankOf(t *testing.T) {
	model := kinds()["MPIJob"]
	for name, test := range map[string]struct {
		change func(*Facts)
		want   Rank
	}{
		"waits":                {func(*Facts) {}, Certain},
		"has got past it":      {reach(training.StepWorkersReached), Note},
		"failed for it":        {fails(training.FailureSSHConnection, ""), Likely},
		"failed for something": {fails(training.FailureTraining, ""), Note},
		"succeeded":            {succeeds, Note},
	} {
		if got := pending(model, test.change).rank(Certain, training.StepWorkersReached, training.FailureSSHConnection); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// Of a job that runs in another cluster this one says nothing.
func TestJobsOfAnotherCluster(t *testing.T) {
	for kind, model := range kinds() {
		model.ManagedBy = training.ManagedByMultiKueue
		findings := Diagnose(pending(model, inCluster(), func(facts *Facts) { facts.Previous.Phase = "" }))
		if diff := cmp.Diff([]string{"note: Another controller manages the job"}, inBrief(findings)); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
		if report := Preflight(submitted(model, inCluster())); report.Number(Fail) > 0 || report.Number(Unknown) != 8 {
			t.Errorf("%s: %+v", kind, report)
		}
	}
}

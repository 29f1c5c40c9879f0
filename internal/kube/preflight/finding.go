// SPDX-License-Identifier: Apache-2.0

// Package preflight finds what keeps a job from running, before it is submitted and
// while it exists.
//
// It has two halves. The Gatherer reads facts with the permissions of the user: what
// the user may not read is unknown, and the other checks still run. The checks are
// pure functions from facts to findings, the most likely cause first, each with the
// command or the edit that fixes it.
package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Rank is how certain it is that a finding is the cause.
type Rank int

const (
	// Cause: the operator says that the job failed for it.
	Cause Rank = iota
	// Certain: the job cannot continue until it is fixed.
	Certain
	// Likely: it probably blocks the job.
	Likely
	// Possible: it may be related.
	Possible
	// Note: it is worth knowing, and does not block this job now.
	Note
	// NotKnown: the check could not read what it needs.
	NotKnown
)

var ranks = []string{"cause", "certain", "likely", "possible", "note", "not known"}

func (r Rank) String() string { return ranks[r] }

// MarshalText writes the name of a rank.
func (r Rank) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a rank.
func (r *Rank) UnmarshalText(text []byte) error {
	at := slices.Index(ranks, string(text))
	if at < 0 {
		return fmt.Errorf("%q is not a rank; the ranks are %s", text, strings.Join(ranks, ", "))
	}
	*r = Rank(at)
	return nil
}

// Blocks reports whether a finding of this rank blocks the job.
func (r Rank) Blocks() bool { return r <= Likely }

// Finding is one problem that a check found.
type Finding struct {
	Rank Rank `json:"rank"`
	// Check is the name of the check: Quota, Nodes, NetworkPolicy.
	Check string `json:"check"`
	// Title is a short summary, Cause the explanation in a sentence or two.
	Title string `json:"title"`
	Cause string `json:"cause,omitempty"`
	// Object is what the finding is about, as kubectl names it.
	Object string `json:"object,omitempty"`
	// Fix is the command or the edit that fixes it.
	Fix string `json:"fix,omitempty"`
	// Documentation is the address of a page with more details.
	Documentation string `json:"documentation,omitempty"`

	// waits is set if a job that does not run yet waits for what the finding is about. It
	// has the cause and what else is known of it, without texts.
	waits *Waiting
}

// Check is a named check.
type Check struct {
	Name string
	Of   func(*Facts) []Finding
}

// ofStoredJobs are the checks of jobs in the cluster, the most frequent causes first.
var ofStoredJobs = []Check{
	{checkStatus, status}, {"Pods", pods}, {"Gates", gates}, {"Image", image}, {checkQuota, quotas}, {checkNodes, nodesThatFit}, {checkNetwork, network},
	{checkDNS, names}, {"Queue", queue}, {"PodGroup", podGroup}, {"Storage", storage}, {"PodSecurity", podSecurity}, {"Istio", istio}, {"Shared memory", sharedMemory},
	{"Operator", operator}, {"Events", events},
}

// Diagnose runs every check on a job in the cluster. The most likely cause comes
// first.
func Diagnose(facts *Facts) []Finding {
	checks := ofStoredJobs
	if facts.elsewhere() || facts.OfMPIOperator {
		// The job runs in another cluster, or has other objects than ours: only its status
		// can be checked.
		checks = checks[:1]
	}
	var findings []Finding
	for _, check := range checks {
		for _, finding := range check.Of(facts) {
			finding.Check = check.Name
			findings = append(findings, finding)
		}
	}
	if facts.Job == nil && !facts.hasSucceeded() {
		findings = append(findings, unknown("The job's pods", facts.NoModel)...)
	}
	explainWaiting(facts, findings)
	sortByRank(findings)
	return findings
}

// sortByRank keeps the order of the checks within a rank.
func sortByRank(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Rank, b.Rank) })
}

// unknown is the finding of a check that could not read what it needs.
func unknown(title, reason string) []Finding {
	return []Finding{{Rank: NotKnown, Title: title, Cause: "not known: " + reason}}
}

// Pages of the documentation.
const (
	guide        = "https://github.com/trireme-mpi/trireme/blob/main/docs/"
	pageFailures = guide + "user-guide/failures.md"
	pageJobs     = guide + "user-guide/jobs.md"
	pageData     = guide + "user-guide/data.md"
	pageMPI      = guide + "user-guide/mpi.md"
	pageOperator = guide + "admin-guide/operator.md"
)

// resourceOf is the name of a kind for kubectl.
func resourceOf(kind job.Kind) string { return strings.ToLower(string(kind)) }

// count formats a number with a noun.
func count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

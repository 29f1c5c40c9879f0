// Package checks finds what keeps a job from running, before it is submitted and
// while it is there.
//
// It is in two halves. Facts are gathered with the rights of whoever asks: what
// may not be read is not known, and the rest is looked at all the same. The
// checks are pure: from facts to findings, the most likely cause first, each with
// the command or the edit that helps.
package preflight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Rank is how sure it is that a finding is the cause.
type Rank int

const (
	// Cause: it is why the job ended, by the operator's own words.
	Cause Rank = iota
	// Certain: the job does not go on until it is dealt with.
	Certain
	// Likely: it probably keeps the job from going on.
	Likely
	// Possible: it may have to do with it.
	Possible
	// Note: it is worth knowing, and does this job no harm now.
	Note
	// NotKnown: it could not be looked at.
	NotKnown
)

var ranks = []string{"cause", "certain", "likely", "possible", "note", "not known"}

func (rank Rank) String() string { return ranks[rank] }

// MarshalText writes a rank as a word.
func (rank Rank) MarshalText() ([]byte, error) { return []byte(rank.String()), nil }

// UnmarshalText reads the word.
func (rank *Rank) UnmarshalText(text []byte) error {
	at := slices.Index(ranks, string(text))
	if at < 0 {
		return fmt.Errorf("%q is no rank: there are %s", text, strings.Join(ranks, ", "))
	}
	*rank = Rank(at)
	return nil
}

// Hinders tells whether a job is kept from going on.
func (rank Rank) Hinders() bool { return rank <= Likely }

// Finding is something that a check found.
type Finding struct {
	Rank Rank `json:"rank"`
	// Check is what found it: Quota, Nodes, NetworkPolicy.
	Check string `json:"check"`
	// Title is the finding in a few words, Cause in a sentence or two.
	Title string `json:"title"`
	Cause string `json:"cause,omitempty"`
	// Object that it is about, as kubectl names it.
	Object string `json:"object,omitempty"`
	// Fix is the command, or the edit, that helps.
	Fix string `json:"fix,omitempty"`
	// Documentation is a page that says more.
	Documentation string `json:"documentation,omitempty"`
}

// Check is one thing that is looked at.
type Check struct {
	Name string
	Of   func(*Facts) []Finding
}

// ofStoredJobs are in the order of how often each is what is wrong.
var ofStoredJobs = []Check{
	{"Status", status}, {"Pods", pods}, {"Image", image}, {"Quota", quotas}, {"Nodes", nodesThatFit}, {"NetworkPolicy", network},
	{"DNS", names}, {"Queue", queue}, {"PodGroup", podGroup}, {"Storage", storage}, {"PodSecurity", podSecurity}, {"Istio", istio},
	{"Operator", operator}, {"Events", events},
}

// Diagnose runs every check on a job that is there. The most likely cause comes
// first.
func Diagnose(facts *Facts) []Finding {
	checks := ofStoredJobs
	if facts.elsewhere() {
		// What this cluster has says nothing about another's.
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
		findings = append(findings, unknown("What the job asks for", facts.NoModel)...)
	}
	explainWaiting(facts, findings)
	sortByRank(findings)
	return findings
}

// sortByRank keeps the order of the checks within a rank.
func sortByRank(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Rank, b.Rank) })
}

// unknown is the finding of a check that could not look.
func unknown(title, why string) []Finding {
	return []Finding{{Rank: NotKnown, Title: title, Cause: "not known: " + why}}
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

// resourceOf is a kind as kubectl takes it.
func resourceOf(kind job.Kind) string { return strings.ToLower(string(kind)) }

// count is a number with its noun.
func count(number int, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

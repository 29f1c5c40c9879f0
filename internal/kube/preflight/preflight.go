// SPDX-License-Identifier: Apache-2.0

package preflight

import "slices"

// Result is the result of a check before submission.
type Result string

const (
	OK      Result = "ok"
	Warning Result = "warning"
	Fail    Result = "fail"
	// Unknown: the check could not read what it needs.
	Unknown Result = "not known"
)

// Outcome is a check before submission with its findings.
type Outcome struct {
	Check    string    `json:"check"`
	Result   Result    `json:"result"`
	Findings []Finding `json:"findings,omitempty"`
	// quota: a failure of this check is only about quota.
	quota bool
}

// Report is the result of all checks before submission.
type Report struct {
	Passed   int       `json:"passed"`
	Total    int       `json:"total"`
	Outcomes []Outcome `json:"checks"`
}

// Names of checks that other code refers to.
const (
	// CheckPermissions is the check of the user's permissions.
	CheckPermissions = "Permissions"
	checkQuota       = "Quota"
	checkDryRun      = "Dry run"
	checkStatus      = "Status"
	checkNodes       = "Nodes"
	checkNetwork     = "NetworkPolicy"
	checkDNS         = "DNS"
)

// beforeSubmission are the checks of a job, forNamespace those of a namespace.
var (
	beforeSubmission = []Check{
		{CheckPermissions, permissions}, {"Namespace", namespaceExists}, {"Rules", rules}, {checkDryRun, dryRun}, {"Runtime", runtimeExists}, {checkQuota, ofModel(quotas)},
		{checkNetwork, network}, {"Image", ofModel(imageReachable)}, {"Slots", ofModel(slots)}, {"GPU type", ofModel(gpuTypes)},
		{checkNodes, ofModel(nodesThatFit)}, {"Storage", ofModel(storage)}, {"Queue", ofModel(queue)}, {"PodSecurity", ofModel(podSecurity)},
		{"Istio", istio}, {"Operator", operator},
	}
	forNamespace = []Check{
		{CheckPermissions, permissions}, {"Namespace", namespaceExists}, {checkQuota, quotas}, {checkNetwork, network}, {"Istio", istio}, {checkDNS, names}, {"Operator", operator},
	}
)

// ofModel wraps a check that needs the job's model. Without a runtime there is none,
// and a job that runs in another cluster cannot be checked here.
func ofModel(check func(*Facts) []Finding) func(*Facts) []Finding {
	return func(facts *Facts) []Finding {
		switch {
		case facts.Job == nil:
			return unknown("The job's pods", facts.NoModel)
		case facts.elsewhere():
			return unknown("Another cluster", "the job is managed by "+facts.Job.ManagedBy+" and runs in another cluster")
		default:
			return check(facts)
		}
	}
}

// Preflight checks a job that is about to be submitted, or a namespace.
func Preflight(facts *Facts) Report {
	checks := beforeSubmission
	if facts.Name == "" {
		checks = forNamespace
	}
	var report Report
	for _, check := range checks {
		outcome := Outcome{Check: check.Name, Findings: check.Of(facts)}
		for i := range outcome.Findings {
			outcome.Findings[i].Check = check.Name
		}
		sortByRank(outcome.Findings)
		outcome.Result = resultOf(outcome.Findings)
		outcome.quota = check.Name == checkQuota || check.Name == checkDryRun && facts.Submission.Refusal != nil && isQuotaRefusal(facts.Submission.Refusal)
		report.Outcomes = append(report.Outcomes, outcome)
		report.Total++
		if outcome.Result == OK || outcome.Result == Warning {
			report.Passed++
		}
	}
	return report
}

// resultOf is the worst result of the findings. Unknown is worse than a warning,
// because it may hide a failure.
func resultOf(findings []Finding) Result {
	hasRank := func(matches func(Rank) bool) bool {
		return slices.ContainsFunc(findings, func(finding Finding) bool { return matches(finding.Rank) })
	}
	switch {
	case len(findings) == 0:
		return OK
	case hasRank(Rank.Blocks):
		return Fail
	case hasRank(func(rank Rank) bool { return rank == NotKnown }):
		return Unknown
	default:
		return Warning
	}
}

// Number returns how many checks have a result.
func (r *Report) Number(result Result) (number int) {
	for i := range r.Outcomes {
		if r.Outcomes[i].Result == result {
			number++
		}
	}
	return number
}

// QuotaAlone reports whether every failed check is about quota.
func (r *Report) QuotaAlone() bool {
	failed := false
	for i := range r.Outcomes {
		if r.Outcomes[i].Result != Fail {
			continue
		}
		if failed = true; !r.Outcomes[i].quota {
			return false
		}
	}
	return failed
}

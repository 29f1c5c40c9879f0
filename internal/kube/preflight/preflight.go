package preflight

import "slices"

// Result is what a check before submission comes to.
type Result string

const (
	OK      Result = "ok"
	Warning Result = "warning"
	Fail    Result = "fail"
	// Unknown: it could not be looked at.
	Unknown Result = "not known"
)

// Outcome is a check before submission, and what it found.
type Outcome struct {
	Check    string    `json:"check"`
	Result   Result    `json:"result"`
	Findings []Finding `json:"findings,omitempty"`
	// quota: nothing but a quota is in the way.
	quota bool
}

// Report is all that was looked at before submission.
type Report struct {
	Passed   int       `json:"passed"`
	Total    int       `json:"total"`
	Outcomes []Outcome `json:"checks"`
}

// Rights is the name of the check of what the user may do.
const Rights = "Rights"

// beforeSubmission are the checks of a job, forNamespace those of a place for jobs.
var (
	beforeSubmission = []Check{
		{Rights, rights}, {"Namespace", placeExists}, {"Rules", rules}, {"Dry run", dryRun}, {"Runtime", runtimeExists}, {"Quota", ofModel(quotas)},
		{"NetworkPolicy", network}, {"Image", ofModel(imageReachable)}, {"Slots", ofModel(slots)}, {"GPU type", ofModel(gpuTypes)},
		{"Nodes", ofModel(nodesThatFit)}, {"Storage", ofModel(storage)}, {"Queue", ofModel(queue)}, {"PodSecurity", ofModel(podSecurity)},
		{"Istio", istio}, {"Operator", operator},
	}
	forNamespace = []Check{
		{Rights, rights}, {"Namespace", placeExists}, {"Quota", quotas}, {"NetworkPolicy", network}, {"Istio", istio}, {"DNS", names}, {"Operator", operator},
	}
)

// ofModel is a check that can say nothing of a job whose runtime is not known, or
// which runs in another cluster.
func ofModel(check func(*Facts) []Finding) func(*Facts) []Finding {
	return func(facts *Facts) []Finding {
		switch {
		case facts.Job == nil:
			return unknown("What the job asks for", facts.NoModel)
		case facts.elsewhere():
			return unknown("Another cluster", "the job is run by "+facts.Job.ManagedBy+", in a cluster that was not asked")
		default:
			return check(facts)
		}
	}
}

// Preflight looks at a job that is about to be submitted, or at a namespace for
// jobs.
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
		outcome.quota = check.Name == "Quota" || check.Name == "Dry run" && facts.Submission.Refusal != nil && isQuotaRefusal(facts.Submission.Refusal)
		report.Outcomes = append(report.Outcomes, outcome)
		report.Total++
		if outcome.Result == OK || outcome.Result == Warning {
			report.Passed++
		}
	}
	return report
}

// resultOf is the worst of the findings. What is not known is worse than a warning:
// it may be anything.
func resultOf(findings []Finding) Result {
	is := func(holds func(Rank) bool) bool {
		return slices.ContainsFunc(findings, func(finding Finding) bool { return holds(finding.Rank) })
	}
	switch {
	case len(findings) == 0:
		return OK
	case is(Rank.Hinders):
		return Fail
	case is(func(rank Rank) bool { return rank == NotKnown }):
		return Unknown
	default:
		return Warning
	}
}

// Number of outcomes with a result.
func (report *Report) Number(result Result) (number int) {
	for i := range report.Outcomes {
		if report.Outcomes[i].Result == result {
			number++
		}
	}
	return number
}

// QuotaAlone tells whether a quota is all that is in the way.
func (report *Report) QuotaAlone() bool {
	failed := false
	for i := range report.Outcomes {
		if report.Outcomes[i].Result != Fail {
			continue
		}
		if failed = true; !report.Outcomes[i].quota {
			return false
		}
	}
	return failed
}

package rest

import (
	"math"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

const (
	usualLimit = 100
	mostLimit  = 1000
	// usualTail is how many lines of each pod are shown of logs that are not followed
	// for ever.
	usualTail = 100
)

func listParameters(kind *jobview.Kind) []parameter {
	found := []parameter{
		{name: "labelSelector", kind: "string", description: "only jobs with these labels, such as team=vision"},
		{name: "fieldSelector", kind: "string", description: "only jobs with these fields: metadata.name, status.phase"},
		{name: "status", kind: "string", words: jobview.States, description: "only jobs in this state"},
		{name: "search", kind: "string", description: "only jobs with this in their name"},
		{name: "sort", kind: "string", words: orders, description: "the order; with - before it the other way round"},
		{name: "limit", kind: "integer", least: 1, most: mostLimit, usual: "100", description: "how many jobs on a page"},
		{name: "continue", kind: "string", description: "where the page before ended"},
	}
	if kind.Kind == job.KindTrainJob {
		found = append(found, parameter{name: "runtime", kind: "string", description: "only jobs of a runtime, by its name; or of a framework: mpi"})
	}
	return found
}

var orders = []string{"name", "-name", "namespace", "-namespace", "status", "-status", "creationTime", "-creationTime", "startTime", "-startTime"}

func createParameters(kind *jobview.Kind) []parameter {
	found := []parameter{{name: "dryRun", kind: "string", words: []string{"All"}, description: "All: judge the job as if it were created, and create nothing"}}
	if kind.Kind == job.KindTrainJob {
		found = append(found, parameter{name: "name", kind: "string", description: "name of the job, where the body is only its spec"})
	}
	return found
}

var deleteParameters = []parameter{
	{name: "gracePeriodSeconds", kind: "integer", least: 0, most: math.MaxInt32, description: "seconds that pods have to stop, instead of their own terminationGracePeriodSeconds; the caller must be allowed to delete pods"},
	{name: "dryRun", kind: "string", words: []string{"All"}, description: "All: delete nothing"},
}

var metricParameters = []parameter{{name: "timeRange", kind: "string", words: []string{"1h", "6h", "24h", "7d"}, usual: "1h", description: "how far back"}}

// podParameters choose among a job's pods.
var podParameters = []parameter{
	{name: "podType", kind: "string", words: []string{training.RoleLauncher, training.RoleWorker, "all"}, usual: "all", description: "which pods"},
	{name: "podIndex", kind: "integer", least: 0, most: math.MaxInt32, description: "one worker, by its number from 0"},
}

var logParameters = []parameter{
	{name: "container", kind: "string", description: "another container than the first"},
	{name: "follow", kind: "boolean", usual: "false", description: "go on until the job has ended; also as a WebSocket, or as server-sent events"},
	{name: "previous", kind: "boolean", usual: "false", description: "what ran before"},
	{name: "tailLines", kind: "integer", least: 0, most: math.MaxInt32, usual: "100", description: "how many lines of each pod to begin with"},
	{name: "sinceSeconds", kind: "integer", least: 1, most: math.MaxInt32, description: "only what is newer than so many seconds"},
	{name: "since", kind: "date-time", description: "only what is newer"},
}

var watchParameters = []parameter{
	{name: "name", kind: "string", description: "only this job"},
	{name: "resourceVersion", kind: "string", description: "the resourceVersion of the last event that was seen: go on after it"},
}

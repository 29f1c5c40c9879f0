// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"math"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	// defaultTail is the default number of lines from the end of each pod's log.
	defaultTail = 100
)

func listParameters(kind *jobview.Kind) []parameter {
	parameters := []parameter{
		{name: "labelSelector", kind: "string", description: "Only return jobs with these labels, such as team=vision"},
		{name: "fieldSelector", kind: "string", description: "Only return jobs with these field values: metadata.name, status.phase"},
		{name: "status", kind: "string", values: jobview.States, description: "Only return jobs with this status"},
		{name: "search", kind: "string", description: "Only return jobs whose name contains this text"},
		{name: "sort", kind: "string", values: sortOrders, description: "Sort order; a leading - reverses it"},
		{name: "limit", kind: "integer", min: 1, max: maxLimit, defaultValue: "100", description: "Maximum number of jobs per page"},
		{name: "continue", kind: "string", description: "Token of the previous page, to get the next one"},
	}
	if kind.Kind == job.KindTrainJob {
		parameters = append(parameters, parameter{name: "runtime", kind: "string", description: "Only return jobs of this runtime, by name, or of this framework: mpi"})
	}
	return parameters
}

var sortOrders = []string{"name", "-name", "namespace", "-namespace", "status", "-status", "creationTime", "-creationTime", "startTime", "-startTime"}

func createParameters(kind *jobview.Kind) []parameter {
	parameters := []parameter{{name: "dryRun", kind: "string", values: []string{"All"}, description: "All: validate the job without creating it"}}
	if kind.Kind == job.KindTrainJob {
		parameters = append(parameters, parameter{name: "name", kind: "string", description: "Name of the job, if the body is only its spec"})
	}
	return parameters
}

var deleteParameters = []parameter{
	{name: "gracePeriodSeconds", kind: "integer", min: 0, max: math.MaxInt32, description: "Grace period of the pods in seconds, instead of their own terminationGracePeriodSeconds; needs permission to delete pods"},
	{name: "dryRun", kind: "string", values: []string{"All"}, description: "All: check whether the job can be deleted, without deleting it"},
}

var runtimeParameters = []parameter{{name: "dryRun", kind: "string", values: []string{"All"}, description: "All: validate the runtime without storing it"}}

var metricParameters = []parameter{{name: "timeRange", kind: "string", values: []string{"1h", "6h", "24h", "7d"}, defaultValue: "1h", description: "Length of the time range, up to now"}}

var clusterParameters = append([]parameter{{name: "namespace", kind: "string", description: "Only the jobs and quotas of this namespace; default: of all namespaces in which you may list jobs"}}, metricParameters...)

// podParameters select pods of a job.
var podParameters = []parameter{
	{name: "podType", kind: "string", values: []string{training.RoleLauncher, training.RoleWorker, "all"}, defaultValue: "all", description: "Type of the pods"},
	{name: "podIndex", kind: "integer", min: 0, max: math.MaxInt32, description: "Index of one worker, from 0"},
}

var logParameters = []parameter{
	{name: "container", kind: "string", description: "Name of the container; default: the first"},
	{name: "follow", kind: "boolean", defaultValue: "false", description: "Stream the logs until the job has finished; also over a WebSocket or as server-sent events"},
	{name: "previous", kind: "boolean", defaultValue: "false", description: "Return the logs of the previous containers"},
	{name: "tailLines", kind: "integer", min: 0, max: math.MaxInt32, defaultValue: "100", description: "Number of lines from the end of each pod's log"},
	{name: "sinceSeconds", kind: "integer", min: 1, max: math.MaxInt32, description: "Only return lines newer than this many seconds"},
	{name: "since", kind: "date-time", description: "Only return lines newer than this time"},
}

var watchParameters = []parameter{
	{name: "name", kind: "string", description: "Only watch this job"},
	{name: "resourceVersion", kind: "string", description: "resourceVersion of the last event that you received, to resume after it"},
}

var watchAllParameters = []parameter{
	{name: "namespace", kind: "string", description: "Only watch the jobs of this namespace"},
	{name: "trainJobVersion", kind: "string", description: "resourceVersion of the last event of a TrainJob that you received, to resume after it"},
	{name: "mpiJobVersion", kind: "string", description: "resourceVersion of the last event of an MPIJob that you received, to resume after it"},
}

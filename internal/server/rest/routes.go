// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"slices"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/preflight"
	"github.com/trireme-mpi/trireme/internal/kube/runtimecheck"
	"github.com/trireme-mpi/trireme/internal/kube/usage"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
	"github.com/trireme-mpi/trireme/internal/server/operation"
)

// route is a method and path of the API.
type route struct {
	method, path string
	// id is the operationId, for generated clients.
	id, summary string
	kind        *jobview.Kind
	parameters  []parameter
	// body is an example of the request body; nil if there is none.
	body any
	// success is the status code of a response, and response an example of its body, or
	// nil.
	success  int
	response any
	// errors are the error codes of this route besides commonErrors.
	errors []int
	handle func(*API, *input) (any, error)
	// stream writes the response itself.
	stream func(*API, http.ResponseWriter, *input)
	// operation is the route's row in the table of operations.
	operation *operation.Operation
}

const (
	namespaced = "/api/v1/namespaces/{namespace}"
	flat       = "/api/v1"
)

// allRoutes returns all routes.
func allRoutes() []*route {
	var routes []*route
	for _, kind := range jobview.Kinds {
		routes = append(routes, jobRoutes(kind, namespaced)...)
		routes = append(routes, aliases(kind)...)
	}
	routes = append(routes, historyRoutes()...)
	routes = append(routes, namespaceRoutes()...)
	routes = append(routes, runtimeRoutes()...)
	return append(routes, watchRoutes()...)
}

// jobRoutes returns the routes of jobs of one kind.
func jobRoutes(kind *jobview.Kind, base string) []*route {
	all := base + "/" + kind.Plural
	one := all + "/{name}"
	name := string(kind.Kind)
	routes := []*route{
		{method: http.MethodPost, path: all, id: "create" + name, summary: "Create a job", body: submission{kind}, success: http.StatusCreated, response: jobBody{kind},
			parameters: createParameters(kind), errors: []int{404, 408, 409, 415, 422}, handle: (*API).create},
		{method: http.MethodGet, path: all, id: "list" + name + "s", summary: "List jobs, page by page", success: http.StatusOK, response: listOf(kind),
			parameters: listParameters(kind), handle: (*API).list},
		{method: http.MethodGet, path: one, id: "get" + name, summary: "Get a job", success: http.StatusOK, response: jobBody{kind}, errors: []int{404}, handle: (*API).get},
		{method: http.MethodDelete, path: one, id: "delete" + name, summary: "Delete a job and its pods and other objects", success: http.StatusNoContent,
			parameters: deleteParameters, errors: []int{404, 409}, handle: (*API).delete},
		{method: http.MethodGet, path: one + "/status", id: "get" + name + "Status", summary: "Get the status of a job", success: http.StatusOK, response: statusBody{kind}, errors: []int{404}, handle: (*API).status},
		{method: http.MethodPost, path: one + "/restart", id: "restart" + name, summary: "Restart a failed job: create a copy under a new name and delete the failed job",
			success: http.StatusCreated, response: jobBody{kind}, errors: []int{404, 409, 422}, handle: (*API).restart},
		{method: http.MethodPost, path: one + "/suspend", id: "suspend" + name, summary: "Suspend a job: delete its pods and keep the job", success: http.StatusOK, response: jobBody{kind}, errors: []int{404, 409, 422}, handle: suspension(true)},
		{method: http.MethodPost, path: one + "/resume", id: "resume" + name, summary: "Resume a suspended job", success: http.StatusOK, response: jobBody{kind}, errors: []int{404, 409, 422}, handle: suspension(false)},
		{method: http.MethodGet, path: one + "/events", id: "list" + name + "Events", summary: "List the events of a job and the warnings of its pods", success: http.StatusOK, response: eventList{}, errors: []int{404}, handle: (*API).events},
		{method: http.MethodGet, path: one + "/metrics", id: "get" + name + "Metrics", summary: "Get the resource usage of a job's pods, now and over time", success: http.StatusOK, response: usage.Report{}, parameters: metricParameters, errors: []int{404}, handle: (*API).metrics},
		{method: http.MethodGet, path: one + "/metrics/curves", id: "get" + name + "Curves", summary: "Get the metrics that a running job has reported, over time", success: http.StatusOK, response: reports.JobCurves{}, errors: []int{404, 501}, handle: (*API).curves},
		{method: http.MethodGet, path: one + "/ranks", id: "get" + name + "Ranks", summary: "Get all ranks of a running job, as its agents last reported them", success: http.StatusOK, response: reports.JobRanks{}, errors: []int{404, 501}, handle: (*API).ranks},
		{method: http.MethodGet, path: one + "/diagnose", id: "diagnose" + name, summary: "Diagnose why a job does not run, or why it failed", success: http.StatusOK, response: preflight.Diagnosis{}, errors: []int{404}, handle: (*API).diagnose},
	}
	routes = append(routes, logRoutes(name, one)...)
	for _, route := range routes {
		route.kind = kind
	}
	return routes
}

// aliases returns routes for reads with the namespace as a parameter, not in the path. A
// list without a namespace is of all namespaces in which the caller may list jobs.
func aliases(kind *jobview.Kind) []*route {
	var routes []*route
	for _, route := range jobRoutes(kind, flat) {
		if route.method != http.MethodGet {
			continue
		}
		isList := route.path == flat+"/"+kind.Plural
		route.id += "Flat"
		namespace := parameter{name: "namespace", kind: "string", description: "Namespace of the job", required: !isList}
		if isList {
			namespace.description = "Namespace; default: all namespaces in which you may list jobs"
		}
		route.parameters = append(slices.Clone(route.parameters), namespace)
		routes = append(routes, route)
	}
	return routes
}

// logRoutes returns the routes of logs.
func logRoutes(name, one string) []*route {
	read := func(path, id, summary string, found any, parameters []parameter) *route {
		return &route{method: http.MethodGet, path: one + path, id: id, summary: summary, success: http.StatusOK, response: found, errors: []int{404}, parameters: parameters, stream: (*API).readLogs}
	}
	return []*route{
		read("/logs", "get"+name+"Logs", "Get the logs of all pods of a job, merged by time", logList{}, slices.Concat(podParameters, logParameters)),
		read("/logs/launcher", "get"+name+"LauncherLogs", "Get the logs of the launcher", plainText{}, logParameters),
		read("/logs/worker/{index}", "get"+name+"WorkerLogs", "Get the logs of one worker", plainText{}, logParameters),
	}
}

// namespaceRoutes returns the routes of namespaces.
func namespaceRoutes() []*route {
	return []*route{
		{method: http.MethodGet, path: flat + "/user", id: "getUser", summary: "Get the user that the server has authenticated", success: http.StatusOK, response: user{}, handle: (*API).user},
		{method: http.MethodGet, path: flat + "/cluster", id: "getCluster", summary: "Get the capacity of the nodes, the jobs that wait, and what the jobs of each namespace request and use", success: http.StatusOK, response: jobservice.ClusterUse{},
			parameters: clusterParameters, handle: (*API).cluster},
		{method: http.MethodGet, path: namespaced + "/quota", id: "getQuota", summary: "Get the quotas of a namespace and their usage", success: http.StatusOK, response: jobservice.Quota{}, handle: (*API).quota},
		{method: http.MethodGet, path: namespaced + "/preflight", id: "checkNamespace", summary: "Check whether jobs can run in a namespace", success: http.StatusOK, response: preflight.PreflightReport{}, handle: (*API).checkNamespace},
		{method: http.MethodPost, path: namespaced + "/preflight", id: "checkJob", summary: "Check whether a job of either kind can run, without creating it", body: anyJob{}, success: http.StatusOK, response: preflight.PreflightReport{},
			errors: []int{408, 415}, handle: (*API).checkJob},
	}
}

// runtimeRoutes returns the routes of runtimes.
func runtimeRoutes() []*route {
	framework := []parameter{{name: "framework", kind: "string", description: "Only return runtimes of this framework, such as MPI"}}
	cluster, own := runtimeBody{string(v2alpha1.RuntimeKindCluster)}, runtimeBody{string(v2alpha1.RuntimeKindNamespaced)}
	return []*route{
		{method: http.MethodGet, path: flat + "/clustertrainingruntimes", id: "listClusterTrainingRuntimes", summary: "List the runtimes of the cluster", parameters: framework, success: http.StatusOK, response: runtimeList{}, handle: (*API).runtimes},
		{method: http.MethodGet, path: flat + "/clustertrainingruntimes/{name}", id: "getClusterTrainingRuntime", summary: "Get a runtime of the cluster", success: http.StatusOK, response: cluster, errors: []int{404}, handle: (*API).runtime},
		{method: http.MethodGet, path: namespaced + "/clustertrainingruntimes", id: "listRuntimes", summary: "List the runtimes that a namespace can use, of both scopes", parameters: framework, success: http.StatusOK, response: runtimeList{}, handle: (*API).runtimes},
		{method: http.MethodGet, path: namespaced + "/trainingruntimes", id: "listTrainingRuntimes", summary: "List the runtimes of a namespace", parameters: framework, success: http.StatusOK, response: runtimeList{}, handle: (*API).ownRuntimes},
		{method: http.MethodGet, path: namespaced + "/trainingruntimes/{name}", id: "getTrainingRuntime", summary: "Get a runtime of a namespace", success: http.StatusOK, response: own, errors: []int{404}, handle: (*API).runtime},

		{method: http.MethodPost, path: flat + "/clustertrainingruntimes", id: "createClusterTrainingRuntime", summary: "Create a runtime of the cluster", body: cluster, success: http.StatusCreated, response: cluster,
			parameters: runtimeParameters, errors: changeErrors, handle: (*API).createRuntime},
		{method: http.MethodPut, path: flat + "/clustertrainingruntimes/{name}", id: "updateClusterTrainingRuntime", summary: "Replace a runtime of the cluster", body: cluster, success: http.StatusOK, response: cluster,
			parameters: runtimeParameters, errors: changeErrors, handle: (*API).updateRuntime},
		{method: http.MethodPost, path: namespaced + "/trainingruntimes", id: "createTrainingRuntime", summary: "Create a runtime of a namespace", body: own, success: http.StatusCreated, response: own,
			parameters: runtimeParameters, errors: changeErrors, handle: (*API).createRuntime},
		{method: http.MethodPut, path: namespaced + "/trainingruntimes/{name}", id: "updateTrainingRuntime", summary: "Replace a runtime of a namespace", body: own, success: http.StatusOK, response: own,
			parameters: runtimeParameters, errors: changeErrors, handle: (*API).updateRuntime},

		{method: http.MethodPost, path: flat + "/runtimes/validate", id: "validateRuntime", summary: "Validate a runtime of either scope with the operator's default limits, and find likely mistakes", body: anyDocument{}, success: http.StatusOK,
			response: runtimecheck.Findings{}, errors: []int{408, 415}, handle: (*API).validateRuntime},
		{method: http.MethodPost, path: namespaced + "/runtimetests", id: "testRuntime", summary: "Test a runtime: create a job of two workers in which every rank prints a line", kind: jobview.TrainJobs, body: jobservice.RuntimeTest{},
			success: http.StatusCreated, response: runtimecheck.TrialReport{}, errors: changeErrors, handle: (*API).testRuntime},
		{method: http.MethodGet, path: namespaced + "/runtimetests/{name}", id: "getRuntimeTest", summary: "Get the steps of a runtime's test, by the name of its job", kind: jobview.TrainJobs,
			success: http.StatusOK, response: runtimecheck.TrialReport{}, errors: []int{404}, handle: (*API).runtimeTestReport},
	}
}

// changeErrors are the error codes of routes that take an object.
var changeErrors = []int{404, 408, 409, 415, 422}

// watchRoutes returns the routes of watches. They have a path prefix of their own, which
// cannot be the name of a job.
func watchRoutes() []*route {
	routes := []*route{{
		method: http.MethodGet, path: flat + "/watch/jobs", id: "watchJobs", success: http.StatusOK, response: eventStream{},
		summary:    "Watch the jobs of both kinds, of a namespace or of all namespaces in which you may watch jobs: each kind has its own SYNCED and its own resourceVersion",
		parameters: watchAllParameters, errors: []int{406, 410}, stream: (*API).watchAll,
	}}
	for _, kind := range jobview.Kinds {
		routes = append(routes, &route{
			method: http.MethodGet, path: flat + "/watch/namespaces/{namespace}/" + kind.Plural, id: "watch" + string(kind.Kind) + "s", kind: kind, success: http.StatusOK, response: eventStream{},
			summary:    "Watch the jobs of a namespace, as server-sent events or over a WebSocket: first an ADDED event for each job, then SYNCED, then the changes in order",
			parameters: watchParameters, errors: []int{406, 410}, stream: (*API).watch,
		})
	}
	return routes
}

// listOf returns an example of a list: a Kubernetes list for MPIJobs, rows for TrainJobs.
func listOf(kind *jobview.Kind) any {
	if kind.Kind == job.KindMPIJob {
		return jobList{kind}
	}
	return rowList{}
}

// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

const (
	flat       = "/api/v1"
	namespaced = "/api/v1/namespaces/{namespace}"
)

// Table has all rows.
var Table = slices.Concat(restJobs(), restHistory(), restOthers, grpcMethods)

// restJobs are the routes of jobs, once for each kind.
func restJobs() (rows []Operation) {
	for _, kind := range jobview.Kinds {
		name, jobs := string(kind.Kind), namespaced+"/"+kind.Plural
		job := jobs + "/{name}"
		rows = append(rows,
			Operation{Call: "POST " + jobs, Verb: "create", Kind: name, Audit: AuditChange},
			Operation{Call: "DELETE " + job, Verb: "delete", Kind: name, Audit: AuditChange},
			Operation{Call: "POST " + job + "/restart", Verb: "create", Kind: name, Audit: AuditChange},
			Operation{Call: "POST " + job + "/suspend", Verb: "patch", Kind: name, Audit: AuditChange},
			Operation{Call: "POST " + job + "/resume", Verb: "patch", Kind: name, Audit: AuditChange},
			Operation{Call: "GET " + flat + "/watch/namespaces/{namespace}/" + kind.Plural, Verb: "watch", Kind: name, Stream: AlwaysStream},
		)
		for _, base := range []string{namespaced, flat} {
			jobs := base + "/" + kind.Plural
			job := jobs + "/{name}"
			rows = append(rows,
				Operation{Call: "GET " + jobs, Verb: "list", Kind: name},
				Operation{Call: "GET " + job, Verb: "get", Kind: name},
				Operation{Call: "GET " + job + "/status", Verb: "get", Kind: name},
				Operation{Call: "GET " + job + "/events", Verb: "get", Kind: name},
				Operation{Call: "GET " + job + "/metrics", Verb: "get", Kind: name},
				Operation{Call: "GET " + job + "/metrics/curves", Verb: "get", Kind: name},
				Operation{Call: "GET " + job + "/ranks", Verb: "get", Kind: name},
				Operation{Call: "GET " + job + "/diagnose", Verb: "check", Kind: name},
				Operation{Call: "GET " + job + "/logs", Verb: "get", Kind: name, Stream: StreamOnFollow},
				Operation{Call: "GET " + job + "/logs/launcher", Verb: "get", Kind: name, Stream: StreamOnFollow},
				Operation{Call: "GET " + job + "/logs/worker/{index}", Verb: "get", Kind: name, Stream: StreamOnFollow},
			)
		}
	}
	return rows
}

// restHistory are the routes of the records of finished jobs, once for each kind. Logs are
// sent line by line, and cannot be followed.
func restHistory() (rows []Operation) {
	for _, kind := range jobview.Kinds {
		name, records := string(kind.Kind), namespaced+"/history/"+kind.Plural
		record := records + "/{name}"
		rows = append(rows,
			Operation{Call: "GET " + records, Verb: "list", Kind: name},
			Operation{Call: "GET " + record, Verb: "get", Kind: name},
			Operation{Call: "GET " + record + "/logs", Verb: "get", Kind: name, Stream: StreamOnFollow},
			Operation{Call: "DELETE " + record, Verb: "delete", Kind: name, Audit: AuditChange},
		)
	}
	return rows
}

// restOthers are the routes of namespaces and runtimes.
var restOthers = []Operation{
	{Call: "GET " + flat + "/watch/jobs", Verb: "watch", Stream: AlwaysStream},
	{Call: "GET " + flat + "/user", Verb: "get"},
	{Call: "GET " + flat + "/cluster", Verb: "get"},
	{Call: "GET " + namespaced + "/quota", Verb: "get"},
	{Call: "GET " + namespaced + "/preflight", Verb: "check"},
	{Call: "POST " + namespaced + "/preflight", Verb: "check"},
	{Call: "GET " + flat + "/clustertrainingruntimes", Verb: "list", Kind: "ClusterTrainingRuntime"},
	{Call: "GET " + flat + "/clustertrainingruntimes/{name}", Verb: "get", Kind: "ClusterTrainingRuntime"},
	{Call: "GET " + namespaced + "/clustertrainingruntimes", Verb: "list", Kind: "ClusterTrainingRuntime"},
	{Call: "GET " + namespaced + "/trainingruntimes", Verb: "list", Kind: "TrainingRuntime"},
	{Call: "GET " + namespaced + "/trainingruntimes/{name}", Verb: "get", Kind: "TrainingRuntime"},
	{Call: "POST " + flat + "/clustertrainingruntimes", Verb: "create", Kind: "ClusterTrainingRuntime", Audit: AuditChange},
	{Call: "PUT " + flat + "/clustertrainingruntimes/{name}", Verb: "update", Kind: "ClusterTrainingRuntime", Audit: AuditChange},
	{Call: "POST " + namespaced + "/trainingruntimes", Verb: "create", Kind: "TrainingRuntime", Audit: AuditChange},
	{Call: "PUT " + namespaced + "/trainingruntimes/{name}", Verb: "update", Kind: "TrainingRuntime", Audit: AuditChange},
	{Call: "POST " + flat + "/runtimes/validate", Verb: "check"},
	{Call: "POST " + namespaced + "/runtimetests", Verb: "create", Kind: "TrainJob", Audit: AuditChange},
	{Call: "GET " + namespaced + "/runtimetests/{name}", Verb: "get", Kind: "TrainJob"},
}

// grpcMethods are the methods of all gRPC services. JobService and HistoryService take jobs of
// both kinds: each request names its kind.
var grpcMethods = []Operation{
	{Call: wire.MPIJobService_CreateMPIJob_FullMethodName, Verb: "create", Kind: "MPIJob", Audit: AuditChange},
	{Call: wire.MPIJobService_GetMPIJob_FullMethodName, Verb: "get", Kind: "MPIJob"},
	{Call: wire.MPIJobService_ListMPIJobs_FullMethodName, Verb: "list", Kind: "MPIJob"},
	{Call: wire.MPIJobService_DeleteMPIJob_FullMethodName, Verb: "delete", Kind: "MPIJob", Audit: AuditChange},
	{Call: wire.MPIJobService_GetMPIJobStatus_FullMethodName, Verb: "get", Kind: "MPIJob"},
	{Call: wire.MPIJobService_WatchMPIJobStatus_FullMethodName, Verb: "watch", Kind: "MPIJob", Stream: AlwaysStream},
	{Call: wire.MPIJobService_GetMPIJobLogs_FullMethodName, Verb: "get", Kind: "MPIJob", Stream: AlwaysStream},

	{Call: wire.TrainJobService_CreateTrainJob_FullMethodName, Verb: "create", Kind: "TrainJob", Audit: AuditChange},
	{Call: wire.TrainJobService_GetTrainJob_FullMethodName, Verb: "get", Kind: "TrainJob"},
	{Call: wire.TrainJobService_ListTrainJobs_FullMethodName, Verb: "list", Kind: "TrainJob"},
	{Call: wire.TrainJobService_DeleteTrainJob_FullMethodName, Verb: "delete", Kind: "TrainJob", Audit: AuditChange},
	{Call: wire.TrainJobService_GetTrainJobStatus_FullMethodName, Verb: "get", Kind: "TrainJob"},
	{Call: wire.TrainJobService_WatchTrainJobStatus_FullMethodName, Verb: "watch", Kind: "TrainJob", Stream: AlwaysStream},
	{Call: wire.TrainJobService_GetTrainJobLogs_FullMethodName, Verb: "get", Kind: "TrainJob", Stream: AlwaysStream},

	{Call: wire.JobService_Suspend_FullMethodName, Verb: "patch", Audit: AuditChange},
	{Call: wire.JobService_Resume_FullMethodName, Verb: "patch", Audit: AuditChange},
	{Call: wire.JobService_Restart_FullMethodName, Verb: "create", Audit: AuditChange},
	{Call: wire.JobService_ListEvents_FullMethodName, Verb: "list"},
	{Call: wire.JobService_GetUsage_FullMethodName, Verb: "get"},
	{Call: wire.JobService_Diagnose_FullMethodName, Verb: "check"},
	{Call: wire.JobService_Preflight_FullMethodName, Verb: "check"},
	{Call: wire.JobService_GetQuota_FullMethodName, Verb: "get"},
	{Call: wire.JobService_ListRuntimes_FullMethodName, Verb: "list"},
	{Call: wire.JobService_GetRuntime_FullMethodName, Verb: "get"},
	{Call: wire.JobService_WatchJobs_FullMethodName, Verb: "watch", Stream: AlwaysStream},

	{Call: wire.HistoryService_ListRecords_FullMethodName, Verb: "list"},
	{Call: wire.HistoryService_GetRecord_FullMethodName, Verb: "get"},
	{Call: wire.HistoryService_GetRecordLogs_FullMethodName, Verb: "get", Stream: AlwaysStream},
	{Call: wire.HistoryService_DeleteRecord_FullMethodName, Verb: "delete", Audit: AuditChange},

	{Call: grpc_health_v1.Health_Check_FullMethodName, Verb: "get"},
	{Call: grpc_health_v1.Health_List_FullMethodName, Verb: "list"},
	{Call: grpc_health_v1.Health_Watch_FullMethodName, Verb: "watch", Stream: AlwaysStream},
	{Call: reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName, Verb: "get", Stream: AlwaysStream},
	{Call: reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName, Verb: "get", Stream: AlwaysStream},
}

var byCall, restPaths = index(Table)

// index returns the rows by call, and a mux that finds the rows of REST paths.
func index(table []Operation) (map[string]*Operation, *http.ServeMux) {
	calls, paths, mux := map[string]*Operation{}, map[string]pathRows{}, http.NewServeMux()
	for i := range table {
		row := &table[i]
		if calls[row.Call] != nil {
			panic("two rows for " + row.Call)
		}
		calls[row.Call] = row
		method, path, isREST := strings.Cut(row.Call, " ")
		if !isREST {
			continue
		}
		if paths[path] == nil {
			paths[path] = pathRows{}
			mux.Handle(path, paths[path])
		}
		paths[path][method] = row
	}
	return calls, mux
}

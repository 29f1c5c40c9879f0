// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// recorded is a record of an MPIJob that finished some minutes ago.
func recorded(name string, uid types.UID, minutes int, change ...func(*history.Record)) *history.Record {
	finished := now.Add(-time.Duration(minutes) * time.Minute)
	started := finished.Add(-90 * time.Minute)
	record := &history.Record{
		Summary: history.Summary{
			Key: history.Key{NamespaceUID: "0", Kind: job.KindMPIJob, UID: uid}, Namespace: "default", Name: name, State: "Succeeded", Message: "The launcher completed successfully",
			CreationTime: started.Add(-time.Minute), StartTime: &started, FinishTime: finished, LogLines: 2,
		},
		Job:    json.RawMessage(`{"kind": "MPIJob", "spec": {"slotsPerWorker": 4, "mpiReplicaSpecs": {"Worker": {"replicas": 2}}}}`),
		Curves: []reports.Curve{{Name: "loss", Points: []reports.Point{{Value: 3}, {Value: 0.25}}}},
	}
	for _, change := range change {
		change(record)
	}
	return record
}

// pastServer plays Trireme's server with some records.
type pastServer []*history.Record

func (s pastServer) RoundTrip(request *http.Request) (*http.Response, error) {
	routes, answer := http.NewServeMux(), httptest.NewRecorder()
	for _, kind := range kinds {
		all := "/api/v1/namespaces/default/history/" + kind.Plural
		routes.HandleFunc("GET "+all, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s.list(kind)) })
		routes.HandleFunc("GET "+all+"/{name}", func(w http.ResponseWriter, r *http.Request) {
			summary, found := history.Find(s.list(kind).Items, r.PathValue("name"))
			if !found {
				refuse(w, apierror.New(http.StatusNotFound, "NotFound", "The history has no such job"))
				return
			}
			for _, record := range s {
				if record.UID == summary.UID {
					_ = json.NewEncoder(w).Encode(record)
				}
			}
		})
		routes.HandleFunc("GET "+all+"/{name}/logs", func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Query().Get("rank") {
			case "", "1":
				fmt.Fprint(w, "[1,1]<stdout>:from rank 1 of "+r.PathValue("name")+"\n")
			}
		})
		routes.HandleFunc("DELETE "+all+"/{name}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	}
	routes.HandleFunc("/api/v1/namespaces/secret/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, apierror.New(http.StatusForbidden, "Forbidden", "ada may not list trainjobs in namespace secret", "Ask a namespace admin"))
	})
	routes.HandleFunc("/api/v1/namespaces/login/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, apierror.New(http.StatusUnauthorized, "Unauthorized", "The request has no valid token"))
	})
	routes.HandleFunc("/api/v1/namespaces/proxy/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	routes.ServeHTTP(answer, request)
	return answer.Result(), nil
}

func (s pastServer) list(kind *kind) (list history.RecordList) {
	for _, record := range s {
		if record.Kind == kind.Kind {
			list.Items = append(list.Items, record.Summary)
		}
	}
	list.Total = len(list.Items)
	return list
}

func refuse(w http.ResponseWriter, err *apierror.Error) {
	w.WriteHeader(err.Code)
	_ = json.NewEncoder(w).Encode(err)
}

func TestHistory(t *testing.T) {
	with := session{server: pastServer{
		recorded("bert", "a1", 200),
		recorded("bert", "a2", 30, func(record *history.Record) {
			record.State, record.FailureReason, record.Message = "Failed", "RankFailed", "Rank 3 on worker 1 exited with code 1"
			record.Job = json.RawMessage(`{"kind": "MPIJob", "spec": {"slotsPerWorker": 8, "mpiReplicaSpecs": {"Worker": {"replicas": 2}}}}`)
			record.Events = []history.RecordedEvent{{Type: "Warning", Reason: "RankFailed", Message: "Rank 3 failed", Time: now, Object: "MPIJob/bert", Count: 1}}
			record.Curves[0].Points[1].Value = 0.5
			record.OmittedLines, record.LogError = 7, "the log was cut off"
		}),
		recorded("gpt", "b1", 20, func(record *history.Record) {
			record.Kind, record.State, record.Deleted, record.StartTime, record.LogLines = job.KindTrainJob, "Pending", true, nil, 0
		}),
	}}
	checkGolden(t, "history", map[string]struct {
		session
		line string
	}{
		"list":              {with, "history list --trireme-server https://t"},
		"list wide":         {with, "history list --trireme-server https://t -o wide"},
		"list json":         {with, "history list --trireme-server https://t -o json"},
		"list picture":      {with, "history list --trireme-server https://t -o picture"},
		"list limit":        {with, "history list --trireme-server https://t --limit 0"},
		"none":              {session{server: pastServer{}}, "history list --trireme-server https://t"},
		"forbidden":         {with, "history list --trireme-server https://t -n secret"},
		"no token":          {with, "history list --trireme-server https://t -n login"},
		"not the server":    {with, "history list --trireme-server https://t -n proxy"},
		"no address":        {with, "history list"},
		"without TLS":       {with, "history list --trireme-server http://t"},
		"show":              {with, "history show bert --trireme-server https://t"},
		"show by UID":       {with, "history show a1 --trireme-server https://t"},
		"show json":         {with, "history show trainjob/gpt --trireme-server https://t -o json"},
		"show none":         {with, "history show llama --trireme-server https://t"},
		"show another kind": {with, "history show pod/bert --trireme-server https://t"},
		"logs":              {with, "history logs mpijob/a1 --trireme-server https://t"},
		"logs incomplete":   {with, "history logs bert --rank 1 --trireme-server https://t"},
		"logs rank":         {with, "history logs a1 --rank 4 --trireme-server https://t"},
		"logs bad rank":     {with, "history logs a1 --rank -1 --trireme-server https://t"},
		"compare":           {with, "history compare a1 a2 --trireme-server https://t"},
		"compare same":      {with, "history compare a1 a1 --trireme-server https://t"},
		"delete":            {with, "history delete bert --trireme-server https://t"},
	})
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
	"github.com/trireme-mpi/trireme/internal/server/jobservice"
)

// printing is a fake service with the logs of one job.
type printing struct {
	jobservice.Interface
	lines []joblog.Line
	err   error
	asked jobservice.LogOptions
}

func (p *printing) Logs(_ context.Context, _ jobservice.JobRef, options jobservice.LogOptions) (iter.Seq2[joblog.Line, error], error) {
	p.asked = options
	return func(yield func(joblog.Line, error) bool) {
		for _, line := range p.lines {
			if !yield(line, nil) {
				return
			}
		}
		if p.err != nil {
			yield(joblog.Line{}, p.err)
		}
	}, nil
}

// serve serves a service until the test ends. It returns the log.
func serve(t *testing.T, asked jobservice.Interface) (*httptest.Server, *API, *bytes.Buffer) {
	t.Helper()
	logged := &bytes.Buffer{}
	api, err := New(asked, Options{CallTimeout: time.Minute, LogTimeout: time.Minute, Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	return server, api, logged
}

const trainPath = "/api/v1/namespaces/team/mpijobs/train"

func TestLogs(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	lines := []joblog.Line{
		{Pod: "train-launcher", Role: training.RoleLauncher, Container: "mpi", Time: at, Text: "a long ", Continues: true, Rank: joblog.NoRank},
		{Pod: "train-launcher", Role: training.RoleLauncher, Container: "mpi", Time: at, Text: "line", Rank: joblog.NoRank},
		{Pod: "train-worker-1", Role: training.RoleWorker, Worker: 1, Container: "mpi", Time: at, Text: "hello", Rank: 3},
	}
	first := `{"podName":"train-launcher","podType":"launcher","index":null,"container":"mpi","timestamp":"2026-01-31T12:00:00Z","message":"a long ","continues":true}`
	last := `{"podName":"train-worker-1","podType":"worker","index":1,"rank":3,"container":"mpi","timestamp":"2026-01-31T12:00:00Z","message":"hello"}`
	away := apierror.New(http.StatusServiceUnavailable, "ServiceUnavailable", "It is away")
	tests := map[string]struct {
		path             string
		lines            []joblog.Line
		err              error
		code             int
		contentType      string
		begins, contains string
		cut              bool
	}{
		"as text":                {path: "/logs/launcher", lines: lines, code: 200, contentType: "text/plain; charset=utf-8", begins: "a long line\nhello\n"},
		"as one document":        {path: "/logs", lines: lines, code: 200, contentType: "application/json", begins: `{"logs":[` + first + ",", contains: last + "]}"},
		"as lines of JSON":       {path: "/logs?follow=true", lines: lines, code: 200, contentType: "application/x-ndjson", begins: first + "\n", contains: last + "\n"},
		"nothing as text":        {path: "/logs/worker/0", code: 200, contentType: "text/plain; charset=utf-8"},
		"nothing as a document":  {path: "/logs", code: 200, contentType: "application/json", begins: `{"logs":[]}`},
		"an error at once":       {path: "/logs/launcher", err: away, code: 503, contentType: "application/json", contains: "It is away"},
		"an error in a document": {path: "/logs", lines: lines, err: away, code: 503, contentType: "application/json", contains: "It is away"},
		"an error later":         {path: "/logs/launcher", lines: lines, err: away, code: 200, contentType: "text/plain; charset=utf-8", cut: true},
		"too much at once":       {path: "/logs", lines: []joblog.Line{{Text: strings.Repeat("x", maxLogBytes)}}, code: 400, contentType: "application/json", contains: "follow=true"},
		"since, twice":           {path: "/logs?since=2026-01-31T12:00:00Z&sinceSeconds=3", code: 400, contentType: "application/json", contains: "cannot be combined with since"},
		"a launcher's number":    {path: "/logs?podType=launcher&podIndex=1", code: 400, contentType: "application/json", contains: "cannot be combined with podType=launcher: only workers have an index"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			server, _, logged := serve(t, &printing{lines: test.lines, err: test.err})
			response, err := http.Get(server.URL + trainPath + test.path)
			if err != nil {
				if !test.cut {
					t.Fatal(err)
				}
				return
			}
			defer response.Body.Close()
			content, err := io.ReadAll(response.Body)
			if cut := err != nil; cut != test.cut {
				t.Fatalf("cut: %t, want %t", cut, test.cut)
			}
			if found := response.Header.Get("Content-Type"); response.StatusCode != test.code || found != test.contentType {
				t.Errorf("%d of %s, want %d of %s", response.StatusCode, found, test.code, test.contentType)
			}
			if !test.cut && (!strings.HasPrefix(string(content), test.begins) || !strings.Contains(string(content), test.contains)) {
				t.Errorf("it is %.300s", content)
			}
			if test.code >= 500 && !strings.Contains(logged.String(), "It is away") {
				t.Errorf("the log says nothing of it: %s", logged)
			}
		})
	}
}

func TestDefaultTail(t *testing.T) {
	for query, want := range map[string]int64{"": 100, "?tailLines=7": 7, "?tailLines=0": 0, "?follow=true": 100} {
		asked := &printing{}
		server, _, _ := serve(t, asked)
		response, err := http.Get(server.URL + trainPath + "/logs" + query)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if *asked.asked.Tail != want {
			t.Errorf("%q: %d lines, want %d", query, *asked.asked.Tail, want)
		}
	}
}

// Unexpected errors are only in the log.
func TestFailuresAreLogged(t *testing.T) {
	server, _, logged := serve(t, &printing{err: errors.New("the password is hunter2")})
	response, err := http.Get(server.URL + trainPath + "/logs")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, _ := io.ReadAll(response.Body)
	if response.StatusCode != 500 || strings.Contains(string(content), "hunter2") || !strings.Contains(logged.String(), "hunter2") {
		t.Errorf("%d: %s; the log: %s", response.StatusCode, content, logged)
	}
}

// The server does not wait for a body that is not sent.
func TestSlowBodies(t *testing.T) {
	server, api, _ := serve(t, &printing{})
	api.CallTimeout, api.bodyGrace = 20*time.Millisecond, 20*time.Millisecond
	body, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = writer.Write([]byte("{")) }()
	response, err := http.Post(server.URL+"/api/v1/namespaces/team/mpijobs", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%s", response.Status)
	}
}

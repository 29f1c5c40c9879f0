// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// A request is what the API server counts by: verb and resource, with its subresource.
type request struct{ verb, resource string }

// requests are how many there were of each.
type requests map[request]float64

// minus is what came between two counts.
func (later requests) minus(earlier requests) requests {
	difference := requests{}
	for request, count := range later {
		if count -= earlier[request]; count > 0 {
			difference[request] = count
		}
	}
	return difference
}

// sum counts those that a function picks.
func (counted requests) sum(pick func(request) bool) float64 {
	total := 0.0
	for request, count := range counted {
		if pick(request) {
			total += count
		}
	}
	return total
}

func isEvent(request request) bool { return request.resource == "events" }
func isWork(request request) bool  { return !isEvent(request) }

// isOfServices is what kube-controller-manager writes for a job's Service while pods come
// and go, whoever made them.
func isOfServices(request request) bool {
	return request.resource == "endpoints" || request.resource == "endpointslices"
}

func isWrite(request request) bool {
	return isWork(request) && slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}, request.verb)
}

// byVerb leaves resources and events out.
func (counted requests) byVerb() map[string]float64 {
	verbs := map[string]float64{}
	for request, count := range counted {
		if isWork(request) {
			verbs[request.verb] += count
		}
	}
	return verbs
}

// String lists them, for those who look for what a controller does.
func (counted requests) String() string {
	var lines []string
	for request, count := range counted {
		lines = append(lines, fmt.Sprintf("%s %s %.0f", request.verb, request.resource, count))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// requests asks the API server what it was asked, by whomever. Leases and nodes are left
// out: they are written whether or not there is work. So are watches, which are counted
// when they end.
func (cluster *cluster) requests(ctx context.Context) (requests, error) {
	text, err := cluster.clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	// The whole page has tens of thousands of lines.
	var lines bytes.Buffer
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("apiserver_request_total{")) {
			lines.Write(line)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&lines)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	counted := requests{}
	for _, metric := range families["apiserver_request_total"].GetMetric() {
		request := request{verb: label(metric, "verb"), resource: label(metric, "resource")}
		if request.verb == "WATCH" || slices.Contains([]string{"", "leases", "nodes"}, request.resource) {
			continue
		}
		if subresource := label(metric, "subresource"); subresource != "" {
			request.resource += "/" + subresource
		}
		counted[request] += metric.GetUntyped().GetValue()
	}
	return counted, nil
}

func label(metric *dto.Metric, name string) string {
	for _, label := range metric.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}

// contestantRequests are all but the benchmark's own.
func (cluster *cluster) contestantRequests(ctx context.Context) (requests, error) {
	counted, err := cluster.requests(ctx)
	if err != nil {
		return nil, err
	}
	for request, count := range cluster.own.counted() {
		counted[request] -= count
	}
	return counted, nil
}

// quietPause is how often it is looked whether anything was asked for.
var quietPause = time.Second

const (
	// quietRounds is for how many pauses nothing may have been.
	quietRounds = 2
	quietLimit  = 5 * time.Minute
)

// untilQuiet waits until nobody writes any more, and tells what was asked until then.
func (cluster *cluster) untilQuiet(ctx context.Context) (requests, error) {
	return cluster.untilNoMore(ctx, isWrite)
}

// untilNoMore waits until there are no more requests of some kind.
func (cluster *cluster) untilNoMore(ctx context.Context, awaited func(request) bool) (requests, error) {
	ctx, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	var before requests
	rounds := 0
	for {
		counted, err := cluster.contestantRequests(ctx)
		if err != nil {
			return nil, fmt.Errorf("wait for the controllers to come to rest: %w", err)
		}
		if before == nil || counted.minus(before).sum(awaited) > 0 {
			rounds = 0
		} else if rounds++; rounds == quietRounds {
			return counted, nil
		}
		select {
		case <-time.After(quietPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the controllers to come to rest: %w; the last that was asked: %s", ctx.Err(), counted.minus(before))
		}
		before = counted
	}
}

// A requestCounter counts a client's requests as the API server does.
type requestCounter struct {
	mutex sync.Mutex
	seen  requests
}

func (counter *requestCounter) counted() requests {
	counter.mutex.Lock()
	defer counter.mutex.Unlock()
	return maps.Clone(counter.seen)
}

func (counter *requestCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(sent *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(sent)
		if err == nil {
			counter.note(requestOf(sent))
		}
		return response, err
	})
}

func (counter *requestCounter) note(request request) {
	counter.mutex.Lock()
	defer counter.mutex.Unlock()
	if counter.seen == nil {
		counter.seen = requests{}
	}
	counter.seen[request]++
}

type roundTripper func(*http.Request) (*http.Response, error)

func (function roundTripper) RoundTrip(sent *http.Request) (*http.Response, error) {
	return function(sent)
}

// requestOf reads verb and resource from method and path: /api/v1/... or
// /apis/GROUP/VERSION/..., with a namespace or without.
func requestOf(sent *http.Request) request {
	parts := strings.Split(strings.Trim(sent.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return request{verb: sent.Method}
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	found := request{verb: sent.Method, resource: parts[0]}
	if len(parts) > 2 {
		found.resource += "/" + parts[2]
	}
	if sent.Method == http.MethodGet && len(parts) == 1 {
		found.verb = "LIST"
		if sent.URL.Query().Get("watch") != "" {
			found.verb = "WATCH"
		}
	}
	return found
}

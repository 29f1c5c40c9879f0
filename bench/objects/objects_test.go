// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"testing"
)

func TestRequestOf(t *testing.T) {
	for path, want := range map[string]request{
		"GET /api/v1/namespaces/a/pods?watch=true":                  {"WATCH", "pods"},
		"GET /api/v1/pods":                                          {"LIST", "pods"},
		"GET /api/v1/namespaces/a":                                  {"GET", "namespaces"},
		"POST /apis/kubeflow.org/v2beta1/namespaces/a/mpijobs":      {"POST", "mpijobs"},
		"PUT /apis/batch/v1/namespaces/a/jobs/b/status":             {"PUT", "jobs/status"},
		"GET /apis/admissionregistration.k8s.io/v1/thing/of-a-name": {"GET", "thing"},
		"GET /metrics": {"GET", ""},
	} {
		var method, address string
		if _, err := fmt.Sscan(path, &method, &address); err != nil {
			t.Fatal(err)
		}
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := requestOf(&http.Request{Method: method, URL: parsed}); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

func TestMinusAndSum(t *testing.T) {
	before := requests{{"POST", "pods"}: 3, {"GET", "pods"}: 2}
	after := requests{{"POST", "pods"}: 10, {"GET", "pods"}: 2, {"POST", "events"}: 4, {"PUT", "mpijobs/status"}: 1}
	between := after.minus(before)
	if len(between) != 3 || between.sum(isWork) != 8 || between.sum(isEvent) != 4 || between.sum(isWrite) != 8 || between.byVerb()["PUT"] != 1 {
		t.Errorf("between are %v", between)
	}
}

func TestLeastSquares(t *testing.T) {
	line := leastSquares([]float64{1, 2, 4}, []float64{5, 7, 11})
	if math.Abs(line.intercept-3) > 1e-9 || math.Abs(line.slope-2) > 1e-9 || math.Abs(line.determination-1) > 1e-9 {
		t.Errorf("the line is %+v", line)
	}
	if scattered := leastSquares([]float64{1, 2, 3, 4}, []float64{1, 9, 2, 8}); scattered.determination > 0.5 {
		t.Errorf("points all over the place pass for a line: %+v", scattered)
	}
}

func TestExponent(t *testing.T) {
	for power, y := range map[float64][]float64{1: {3, 30, 300}, 2: {1, 100, 10000}} {
		if got := exponent([]float64{1, 10, 100}, y); math.Abs(got-power) > 1e-9 {
			t.Errorf("%v grows by the power %v, want %v", y, got, power)
		}
	}
}

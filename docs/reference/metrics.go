// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/server/history"
	"github.com/trireme-mpi/trireme/internal/server/httpserver"
	"github.com/trireme-mpi/trireme/internal/server/jobwatch"
)

// metric is a line of metrics.md.
type metric struct {
	Name, Type, Meaning string
	Labels              []string
}

// component has the metrics of one program.
type component struct {
	Title, Text string
	Metrics     []metric
}

// readMetrics reads the metrics from the collectors that the operator and the server
// register.
func readMetrics() ([]component, error) {
	components := []component{
		{Title: "Operator", Text: "Every replica serves the gauges of jobs, and only the leader counts. In queries, use `max` over the replicas for gauges, and `sum` for counters."},
		{Title: "Server", Text: "Every replica counts its own calls."},
		{Title: "History", Text: "There is one replica, if the [history](../admin-guide/history.md) is enabled."},
	}
	for i, collectors := range [][]prometheus.Collector{operator.Metrics(), slices.Concat(httpserver.Metrics(), jobwatch.Metrics()), history.Metrics()} {
		for _, collector := range collectors {
			found, err := describe(collector)
			if err != nil {
				return nil, err
			}
			components[i].Metrics = append(components[i].Metrics, found...)
		}
		slices.SortFunc(components[i].Metrics, func(a, b metric) int { return cmp.Compare(a.Name, b.Name) })
	}
	return components, nil
}

// description is how client_golang prints what it keeps of a metric; it has no other
// access to it.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: (".*"), unit: "[^"]*", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)

// describe returns the metrics of a collector.
func describe(collector prometheus.Collector) (found []metric, err error) {
	kind, err := typeOf(collector)
	if err != nil {
		return nil, err
	}
	descriptions := make(chan *prometheus.Desc)
	go func() {
		collector.Describe(descriptions)
		close(descriptions)
	}()
	for one := range descriptions {
		match := description.FindStringSubmatch(one.String())
		if match == nil {
			err = fmt.Errorf("docs/reference/metrics.go does not understand %s", one)
			continue
		}
		help, unquoteErr := strconv.Unquote(match[2])
		if unquoteErr != nil {
			err = fmt.Errorf("the help of %s: %w", match[1], unquoteErr)
			continue
		}
		read := metric{Name: match[1], Type: kind, Meaning: help}
		if match[3] != "" {
			read.Labels = strings.Split(match[3], ",")
		}
		found = append(found, read)
	}
	return found, err
}

// typeOf is the type of the metrics of a collector. A gauge has all methods of a counter,
// too.
func typeOf(collector prometheus.Collector) (string, error) {
	switch collector := collector.(type) {
	case interface{ MetricType() string }:
		return collector.MetricType(), nil
	case *prometheus.GaugeVec, prometheus.Gauge:
		return "gauge", nil
	case *prometheus.CounterVec, prometheus.Counter:
		return "counter", nil
	case *prometheus.HistogramVec:
		return "histogram", nil
	default:
		return "", fmt.Errorf("%T needs a method MetricType", collector)
	}
}

// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
)

const (
	// queryTimeout is for all queries together. Calls have 30 s, which must also suffice
	// for the metrics API.
	queryTimeout = 10 * time.Second
	// maxResponse is how much is read of one response: 10,000 pods need about 40 MB.
	maxResponse = 64 << 20
)

// Prometheus queries a Prometheus with the permissions of this process. It only queries
// the pods that the caller passes, so users see no pods that they may not list.
type Prometheus struct {
	api prometheusv1.API
	now func() time.Time
}

// NewPrometheus returns a client for an address such as http://prometheus:9090. The HTTP
// client may have certificates and a token; nil means a plain one.
func NewPrometheus(address string, httpClient *http.Client) (*Prometheus, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, fmt.Errorf("%q is not a valid address of Prometheus: use one like http://prometheus.monitoring:9090", parsed.Redacted())
	}
	if httpClient == nil {
		httpClient = &http.Client{}
	}
	bounded := *httpClient
	bounded.Transport = &boundedTransport{inner: httpClient.Transport, limit: maxResponse}
	apiClient, err := api.NewClient(api.Config{Address: address, Client: &bounded})
	if err != nil {
		return nil, err
	}
	return &Prometheus{api: prometheusv1.NewAPI(apiClient), now: time.Now}, nil
}

// boundedTransport cuts off responses that are too large.
type boundedTransport struct {
	inner http.RoundTripper
	limit int64
}

func (bt *boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	inner := bt.inner
	if inner == nil {
		inner = http.DefaultTransport
	}
	response, err := inner.RoundTrip(request)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, bt.limit), response.Body}
	}
	return response, err
}

// answer is the response for one metric.
type answer struct {
	metric   metric
	series   model.Matrix
	warnings []string
	err      error
}

// Of returns the usage of the pods over the window until now. If some queries fail, the
// report says so; if all fail, it returns an error.
func (p *Prometheus) Of(ctx context.Context, pods []corev1.Pod, window time.Duration) (*Report, error) {
	selected := reportedPodsOf(pods)
	all := selected.all()
	if len(all) == 0 {
		return selected.report(SourcePrometheus, nil), nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	answers := p.queryAll(ctx, all, rangeOf(p.now(), window))
	failed := slices.IndexFunc(answers, func(answer answer) bool { return answer.err != nil })
	if !slices.ContainsFunc(answers, func(answer answer) bool { return answer.err == nil }) {
		return nil, answers[failed].err
	}
	report := selected.report(SourcePrometheus, gather(answers, all))
	report.Message = messageOf(answers)
	return report, nil
}

// queryAll queries every metric in parallel.
func (p *Prometheus) queryAll(ctx context.Context, pods []*corev1.Pod, over prometheusv1.Range) []answer {
	answers := make([]answer, len(metrics))
	var running sync.WaitGroup
	for i, metric := range metrics {
		running.Go(func() { answers[i] = p.query(ctx, metric, metric.queryFor(pods, over.Step), over) })
	}
	running.Wait()
	return answers
}

func (p *Prometheus) query(ctx context.Context, metric metric, query string, over prometheusv1.Range) answer {
	value, warnings, _, err := p.api.QueryRange(ctx, query, over)
	series, isMatrix := value.(model.Matrix)
	if err == nil && !isMatrix {
		err = errors.New("the response is not a list of series: check that this is the address of Prometheus")
	}
	return answer{metric: metric, series: series, warnings: warnings, err: brief(ctx, err)}
}

// brief returns an error without the address of Prometheus, which users may not see.
func brief(ctx context.Context, err error) error {
	var unreachable *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", queryTimeout)
	case errors.As(err, &unreachable):
		return unreachable.Err
	}
	return err
}

// gather groups samples by pod. It skips samples from before a pod was created, which are
// of another pod with its name, maybe of another user, and values that are not numbers.
func gather(answers []answer, pods []*corev1.Pod) map[string]Pod {
	created := map[string]time.Time{}
	for _, pod := range pods {
		created[pod.Name] = pod.CreationTimestamp.Time
	}
	measured := map[string]Pod{}
	for _, answer := range answers {
		for _, series := range answer.series {
			name := podOf(series.Metric)
			begin, known := created[name]
			if !known {
				continue
			}
			pod := measured[name]
			*answer.metric.of(&pod) = samplesSince(begin, series.Values, answer.metric.unit)
			measured[name] = pod
		}
	}
	return measured
}

func samplesSince(begin time.Time, values []model.SamplePair, unit float64) []Sample {
	samples := make([]Sample, 0, len(values))
	for _, value := range values {
		number, at := float64(value.Value)*unit, value.Timestamp.Time().UTC()
		if at.Before(begin) || math.IsNaN(number) || math.IsInf(number, 0) {
			continue
		}
		samples = append(samples, Sample{Timestamp: at, Value: number})
	}
	return samples
}

// messageOf says which samples are missing.
func messageOf(answers []answer) string {
	var parts, failed, warnings []string
	series := 0
	for _, answer := range answers {
		series += len(answer.series)
		if answer.err != nil {
			failed = append(failed, fmt.Sprintf("%s (%v)", answer.metric.what, answer.err))
		}
		for _, warning := range answer.warnings {
			if !slices.Contains(warnings, warning) {
				warnings = append(warnings, warning)
			}
		}
	}
	if len(failed) > 0 {
		parts = append(parts, "Prometheus queries failed: "+strings.Join(failed, ", "))
	}
	if len(warnings) > 0 {
		parts = append(parts, "Prometheus warns: "+strings.Join(warnings, ", "))
	}
	if series == 0 && len(failed) == 0 {
		parts = append(parts, "Prometheus has no samples of these pods; check that it scrapes the cadvisor endpoint of the kubelets, and dcgm-exporter for GPUs")
	}
	return strings.Join(parts, "; ")
}

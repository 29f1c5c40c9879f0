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
	// patience with all queries together. Calls have 30 s, and the metrics API wants
	// to be asked, too.
	patience = 10 * time.Second
	// largestAnswer is how much is read of one answer: 10,000 pods have about 40 MB.
	largestAnswer = 64 << 20
)

// Prometheus asks a Prometheus, with the rights of this process: the pods that it is
// asked for are all that is asked of it, so that who could list them sees no others.
type Prometheus struct {
	api prometheusv1.API
	now func() time.Time
}

// NewPrometheus is the Prometheus at an address, such as http://prometheus:9090. The
// client may bring certificates and a token; nil is one without.
func NewPrometheus(address string, httpClient *http.Client) (*Prometheus, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a Prometheus: give one such as http://prometheus.monitoring:9090", parsed.Redacted())
	}
	if httpClient == nil {
		httpClient = &http.Client{}
	}
	bounded := *httpClient
	bounded.Transport = &boundedTransport{inner: httpClient.Transport, most: largestAnswer}
	made, err := api.NewClient(api.Config{Address: address, Client: &bounded})
	if err != nil {
		return nil, err
	}
	return &Prometheus{api: prometheusv1.NewAPI(made), now: time.Now}, nil
}

// boundedTransport cuts off answers that are too large.
type boundedTransport struct {
	inner http.RoundTripper
	most  int64
}

func (transport *boundedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	inner := transport.inner
	if inner == nil {
		inner = http.DefaultTransport
	}
	response, err := inner.RoundTrip(request)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, transport.most), response.Body}
	}
	return response, err
}

// answer is what Prometheus says of one metric.
type answer struct {
	metric   metric
	series   model.Matrix
	warnings []string
	err      error
}

// Of is what the pods have used in the time up to now. What Prometheus cannot tell of
// some metrics is said in the report; if it can tell nothing, that is an error.
func (prometheus *Prometheus) Of(ctx context.Context, pods []corev1.Pod, window time.Duration) (*Report, error) {
	places := placesOf(pods)
	all := places.all()
	if len(all) == 0 {
		return places.report(SourcePrometheus, nil), nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answers := prometheus.ask(ctx, all, rangeOf(prometheus.now(), window))
	failed := slices.IndexFunc(answers, func(answer answer) bool { return answer.err != nil })
	if !slices.ContainsFunc(answers, func(answer answer) bool { return answer.err == nil }) {
		return nil, answers[failed].err
	}
	report := places.report(SourcePrometheus, gather(answers, all))
	report.Message = messageOf(answers)
	return report, nil
}

// ask asks for every metric at once.
func (prometheus *Prometheus) ask(ctx context.Context, pods []*corev1.Pod, over prometheusv1.Range) []answer {
	answers := make([]answer, len(metrics))
	var asked sync.WaitGroup
	for i, metric := range metrics {
		asked.Go(func() { answers[i] = prometheus.askOne(ctx, metric, metric.queryFor(pods, over.Step), over) })
	}
	asked.Wait()
	return answers
}

func (prometheus *Prometheus) askOne(ctx context.Context, metric metric, query string, over prometheusv1.Range) answer {
	value, warnings, _, err := prometheus.api.QueryRange(ctx, query, over)
	series, isMatrix := value.(model.Matrix)
	if err == nil && !isMatrix {
		err = errors.New("the answer is not a list of series: is this the address of a Prometheus?")
	}
	return answer{metric: metric, series: series, warnings: warnings, err: brief(ctx, err)}
}

// brief is an error without the address of Prometheus, which is not for everybody.
func brief(ctx context.Context, err error) error {
	var unreachable *url.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %s", patience)
	case errors.As(err, &unreachable):
		return unreachable.Err
	}
	return err
}

// gather sorts samples by pods. Samples from before a pod was made are of another one
// of its name, maybe somebody else's, and are left out; so is what is not a number.
func gather(answers []answer, pods []*corev1.Pod) map[string]Pod {
	made := map[string]time.Time{}
	for _, pod := range pods {
		made[pod.Name] = pod.CreationTimestamp.Time
	}
	measured := map[string]Pod{}
	for _, answer := range answers {
		for _, series := range answer.series {
			name := podOf(series.Metric)
			begin, known := made[name]
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

// messageOf says what is missing.
func messageOf(answers []answer) string {
	var said, failed, warnings []string
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
		said = append(said, "Prometheus could not tell: "+strings.Join(failed, ", "))
	}
	if len(warnings) > 0 {
		said = append(said, "Prometheus warns: "+strings.Join(warnings, ", "))
	}
	if series == 0 && len(failed) == 0 {
		said = append(said, "Prometheus has no samples of these pods; see that it scrapes the cadvisor endpoint of the kubelets, and dcgm-exporter for GPUs")
	}
	return strings.Join(said, "; ")
}

// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Choose returns a source that queries Prometheus if configured, and otherwise, or if it
// fails, the metrics API with the permissions of the reader. If both fail, the report
// says why; only a canceled call returns an error.
func Choose(prometheus *Prometheus, reader client.Reader) Source {
	return &chosen{prometheus: prometheus, metrics: MetricsAPI{Reader: reader}}
}

type chosen struct {
	prometheus *Prometheus
	metrics    MetricsAPI
}

func (c *chosen) Of(ctx context.Context, pods []corev1.Pod, window time.Duration) (*Report, error) {
	var failed []string
	if c.prometheus != nil {
		report, err := c.prometheus.Of(ctx, pods, window)
		if err == nil {
			return report, nil
		}
		failed = append(failed, fmt.Sprintf("Prometheus does not answer (%v)", err))
	}
	report, err := c.metrics.Of(ctx, pods, window)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err == nil {
		if len(failed) > 0 {
			report.Message = sentences(append(failed, "these are the last values of the metrics API", report.Message))
		}
		return report, nil
	}
	report = reportedPodsOf(pods).report(SourceNone, nil)
	report.Message = sentences(append(failed, unmeasured(err), c.advice()))
	return report, nil
}

// unmeasured says why the metrics API has no samples.
func unmeasured(err error) string {
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return "the cluster has no metrics API (metrics.k8s.io)"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Sprintf("you may not read the metrics API: ask for permission to list pods of metrics.k8s.io in this namespace (%v)", err)
	}
	return fmt.Sprintf("the cluster's metrics API (metrics.k8s.io) does not answer (%v)", err)
}

func (c *chosen) advice() string {
	if c.prometheus != nil {
		return "check that the server can reach Prometheus, or install a metrics server"
	}
	return "start the server with the address of a Prometheus, or install a metrics server"
}

// sentences joins the parts that are not empty.
func sentences(parts []string) string {
	var present []string
	for _, part := range parts {
		if part != "" {
			present = append(present, part)
		}
	}
	return strings.Join(present, "; ")
}

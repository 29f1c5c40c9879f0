// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
)

// MetricsAPI reads the cluster's metrics API (metrics.k8s.io) with the permissions of its
// reader. It has the current CPU and memory usage, but no history, GPUs or network.
type MetricsAPI struct {
	Reader client.Reader
}

// Of returns one sample of each pod.
func (m MetricsAPI) Of(ctx context.Context, pods []corev1.Pod, _ time.Duration) (*Report, error) {
	selected := reportedPodsOf(pods)
	all := selected.all()
	if len(all) == 0 {
		return selected.report(SourceMetricsAPI, nil), nil
	}
	labels := all[0].Labels
	found, err := List(ctx, m.Reader, client.InNamespace(all[0].Namespace),
		client.MatchingLabels{training.LabelJobName: labels[training.LabelJobName], training.LabelJobType: labels[training.LabelJobType]})
	if err != nil {
		return nil, err
	}
	measured := map[string]Pod{}
	for i := range found {
		used, at := Sum(&found[i]), found[i].Timestamp.UTC()
		measured[found[i].Name] = Pod{
			CPU:    []Sample{{Timestamp: at, Value: used.Cpu().AsApproximateFloat64()}},
			Memory: []Sample{{Timestamp: at, Value: used.Memory().AsApproximateFloat64()}},
		}
	}
	report := selected.report(SourceMetricsAPI, measured)
	if len(measured) == 0 {
		report.Message = "the metrics API has no samples of these pods yet; it has them about a minute after the pods start, while they are running"
	}
	return report, nil
}

// List returns the current usage of the pods of jobs.
func List(ctx context.Context, reader client.Reader, options ...client.ListOption) ([]metricsv1beta1.PodMetrics, error) {
	var list metricsv1beta1.PodMetricsList
	err := reader.List(ctx, &list, append([]client.ListOption{client.HasLabels{training.LabelJobName}}, options...)...)
	return list.Items, err
}

// Sum returns the usage of all containers of a pod.
func Sum(pod *metricsv1beta1.PodMetrics) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, container := range pod.Containers {
		for name, used := range container.Usage {
			total := sum[name]
			total.Add(used)
			sum[name] = total
		}
	}
	return sum
}

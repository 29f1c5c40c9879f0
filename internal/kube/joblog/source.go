// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
)

// Source provides the pods of one job and their logs.
type Source interface {
	// List returns the pods, and Watch their changes since then.
	List(ctx context.Context) (*corev1.PodList, error)
	Watch(ctx context.Context, resourceVersion string) (watch.Interface, error)
	// Get returns one pod.
	Get(ctx context.Context, pod string) (*corev1.Pod, error)
	// Open opens the log of one container.
	Open(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)
	// Worker returns the index of a worker.
	Worker(pod *corev1.Pod) (int32, bool)
}

// FromCluster reads the pods of a job from the cluster. The model needs kind, name,
// namespace and number of workers.
func FromCluster(client typedcorev1.PodsGetter, model *job.Job) Source {
	return &cluster{pods: client.Pods(model.Namespace), job: model, selector: labels.SelectorFromSet(plan.Selector(model)).String()}
}

type cluster struct {
	pods     typedcorev1.PodInterface
	job      *job.Job
	selector string
}

func (c *cluster) List(ctx context.Context) (*corev1.PodList, error) {
	options := metav1.ListOptions{LabelSelector: c.selector, Limit: partial.PageSize}
	var pods []corev1.Pod
	for {
		page, err := c.pods.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			partial.TrimPod(&page.Items[i])
			pods = append(pods, page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			page.Items = pods
			return page, nil
		}
	}
}

func (c *cluster) Watch(ctx context.Context, resourceVersion string) (watch.Interface, error) {
	return c.pods.Watch(ctx, metav1.ListOptions{LabelSelector: c.selector, ResourceVersion: resourceVersion})
}

func (c *cluster) Get(ctx context.Context, pod string) (*corev1.Pod, error) {
	return c.pods.Get(ctx, pod, metav1.GetOptions{})
}

func (c *cluster) Open(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	return c.pods.GetLogs(pod, options).Stream(ctx)
}

func (c *cluster) Worker(pod *corev1.Pod) (int32, bool) {
	return c.job.WorkerIndex(pod)
}

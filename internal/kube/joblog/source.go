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

func (cluster *cluster) List(ctx context.Context) (*corev1.PodList, error) {
	options := metav1.ListOptions{LabelSelector: cluster.selector, Limit: partial.PageSize}
	var pods []corev1.Pod
	for {
		page, err := cluster.pods.List(ctx, options)
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

func (cluster *cluster) Watch(ctx context.Context, resourceVersion string) (watch.Interface, error) {
	return cluster.pods.Watch(ctx, metav1.ListOptions{LabelSelector: cluster.selector, ResourceVersion: resourceVersion})
}

func (cluster *cluster) Get(ctx context.Context, pod string) (*corev1.Pod, error) {
	return cluster.pods.Get(ctx, pod, metav1.GetOptions{})
}

func (cluster *cluster) Open(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	return cluster.pods.GetLogs(pod, options).Stream(ctx)
}

func (cluster *cluster) Worker(pod *corev1.Pod) (int32, bool) {
	return cluster.job.WorkerIndex(pod)
}

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

// Source is where the pods of one job, and their logs, are found.
type Source interface {
	// List is the pods as they are now, and Watch what becomes of them from then on.
	List(ctx context.Context) (*corev1.PodList, error)
	Watch(ctx context.Context, resourceVersion string) (watch.Interface, error)
	// Get is one pod as it is now.
	Get(ctx context.Context, pod string) (*corev1.Pod, error)
	// Open is the log of one container.
	Open(ctx context.Context, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)
	// Worker is the number of a worker.
	Worker(pod *corev1.Pod) (int32, bool)
}

// FromCluster reads the pods of a job. Of the job, its kind, name, namespace and
// number of workers must be known.
func FromCluster(client typedcorev1.PodsGetter, made *job.Job) Source {
	return &cluster{pods: client.Pods(made.Namespace), job: made, selector: labels.SelectorFromSet(plan.Selector(made)).String()}
}

type cluster struct {
	pods     typedcorev1.PodInterface
	job      *job.Job
	selector string
}

func (cluster *cluster) List(ctx context.Context) (*corev1.PodList, error) {
	options := metav1.ListOptions{LabelSelector: cluster.selector, Limit: partial.PageSize}
	var found []corev1.Pod
	for {
		page, err := cluster.pods.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			partial.TrimPod(&page.Items[i])
			found = append(found, page.Items[i])
		}
		if options.Continue = page.Continue; options.Continue == "" {
			page.Items = found
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

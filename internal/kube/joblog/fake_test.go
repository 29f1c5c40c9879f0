package joblog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/trireme-mpi/trireme/api/training"
)

// breaking is a cluster whose streams break: what a real one does too rarely for a
// test to wait for. It answers as kubelet does.
type breaking struct {
	lock    sync.Mutex
	changed *sync.Cond
	pods    []*fakePod
	watches []*watch.RaceFreeFakeWatcher
	// longestStream is how many bytes a stream gives at most before it breaks; 0 is
	// all of them.
	longestStream int
	dice          *rand.Rand
	opened        int
	// refuse answers an Open with an error.
	refuse func(pod string, options *corev1.PodLogOptions) error
}

type fakePod struct {
	pod  *corev1.Pod
	runs []*fakeRun
}

type fakeRun struct {
	lines []stamped
	ended bool
	// cleared: kubelet has deleted the log.
	cleared bool
}

// stamped is a line as it stands in a log file.
type stamped struct {
	at   time.Time
	text string
}

func newBreaking(seed uint64, longestStream int) *breaking {
	cluster := &breaking{longestStream: longestStream, dice: rand.New(rand.NewPCG(seed, 1))}
	cluster.changed = sync.NewCond(&cluster.lock)
	return cluster
}

// begin adds a pod whose container waits.
func (cluster *breaking) begin(name, role string) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, cluster.dice.Uint64())), Labels: map[string]string{training.LabelReplicaType: role},
			CreationTimestamp: metav1.Unix(int64(1000+len(cluster.pods)), 0),
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "main"}, {Name: "side"}}},
	}
	setStatus(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}, "")
	made := &fakePod{pod: pod}
	cluster.pods = append(cluster.pods, made)
	cluster.tell(watch.Added, made)
}

func setStatus(pod *corev1.Pod, state corev1.ContainerState, id string) {
	status := corev1.ContainerStatus{Name: "main", State: state, ContainerID: id}
	if before := pod.Status.ContainerStatuses; len(before) > 0 {
		status.LastTerminationState = before[0].LastTerminationState
		if before[0].State.Terminated != nil {
			status.LastTerminationState = before[0].State
		}
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{status}
}

func (cluster *breaking) tell(what watch.EventType, pod *fakePod) {
	for _, watching := range cluster.watches {
		if !watching.IsStopped() {
			watching.Action(what, pod.pod.DeepCopy())
		}
	}
	cluster.changed.Broadcast()
}

func (cluster *breaking) find(name string) *fakePod {
	for _, pod := range cluster.pods {
		if pod.pod.Name == name {
			return pod
		}
	}
	return nil
}

// run starts the container, for the first time or anew.
func (cluster *breaking) run(name string) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	pod := cluster.find(name)
	pod.runs = append(pod.runs, &fakeRun{})
	setStatus(pod.pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, runID(pod))
	pod.pod.Status.Phase = corev1.PodRunning
	cluster.tell(watch.Modified, pod)
}

func runID(pod *fakePod) string { return fmt.Sprintf("%s-run-%d", pod.pod.UID, len(pod.runs)) }

// write appends to the log of the container's run.
func (cluster *breaking) write(name string, lines ...stamped) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	pod := cluster.find(name)
	run := pod.runs[len(pod.runs)-1]
	run.lines = append(run.lines, lines...)
	cluster.changed.Broadcast()
}

// end ends the container's run, and the pod if it is not to be started anew.
func (cluster *breaking) end(name string, exitCode int32, phase corev1.PodPhase) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	pod := cluster.find(name)
	pod.runs[len(pod.runs)-1].ended = true
	setStatus(pod.pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, ContainerID: runID(pod)}}, runID(pod))
	pod.pod.Status.Phase = phase
	cluster.tell(watch.Modified, pod)
}

func (cluster *breaking) remove(name string) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	pod := cluster.find(name)
	cluster.pods = slices.DeleteFunc(cluster.pods, func(other *fakePod) bool { return other == pod })
	cluster.tell(watch.Deleted, pod)
}

// cutWatches ends every watch, as API servers do.
func (cluster *breaking) cutWatches() {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	for _, watching := range cluster.watches {
		if !watching.IsStopped() {
			watching.Stop()
		}
	}
	cluster.watches = nil
}

func (cluster *breaking) List(context.Context) (*corev1.PodList, error) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	list := &corev1.PodList{}
	for _, pod := range cluster.pods {
		list.Items = append(list.Items, *pod.pod.DeepCopy())
	}
	return list, nil
}

// Watch begins with every pod there is: what changed since a List may be among it.
func (cluster *breaking) Watch(ctx context.Context, _ string) (watch.Interface, error) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	watching := watch.NewRaceFreeFake()
	for _, pod := range cluster.pods {
		watching.Action(watch.Modified, pod.pod.DeepCopy())
	}
	cluster.watches = append(cluster.watches, watching)
	context.AfterFunc(ctx, watching.Stop)
	return watching, nil
}

func (cluster *breaking) Get(_ context.Context, name string) (*corev1.Pod, error) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	if pod := cluster.find(name); pod != nil {
		return pod.pod.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

func (cluster *breaking) Worker(pod *corev1.Pod) (int32, bool) {
	_, text, _ := strings.Cut(pod.Name, "worker-")
	number, err := strconv.Atoi(strings.SplitN(text, "-", 2)[0])
	return int32(number), err == nil
}

func (cluster *breaking) Open(ctx context.Context, name string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	cluster.lock.Lock()
	defer cluster.lock.Unlock()
	cluster.opened++
	if cluster.refuse != nil {
		if err := cluster.refuse(name, options); err != nil {
			return nil, err
		}
	}
	pod := cluster.find(name)
	if pod == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
	}
	runs := pod.runs
	if options.Previous && len(runs) > 0 {
		runs = runs[:len(runs)-1]
	}
	if len(runs) == 0 {
		return nil, apierrors.NewBadRequest("container is waiting to start: ContainerCreating")
	}
	opened := &fakeStream{cluster: cluster, ctx: ctx, run: runs[len(runs)-1], follow: options.Follow, left: -1}
	if opened.run.cleared {
		opened.pending.WriteString("unable to retrieve container logs for containerd://05718")
	}
	if options.SinceTime != nil {
		opened.since = time.Unix(options.SinceTime.Unix(), 0)
	}
	if options.TailLines != nil {
		opened.next = max(0, len(opened.run.lines)-int(*options.TailLines))
	}
	if cluster.longestStream > 0 {
		opened.left = cluster.dice.IntN(cluster.longestStream)
		opened.cleanly = cluster.dice.IntN(2) == 0
	}
	context.AfterFunc(ctx, cluster.changed.Broadcast)
	return opened, nil
}

// fakeStream gives the lines of a run until it breaks.
type fakeStream struct {
	cluster *breaking
	ctx     context.Context
	run     *fakeRun
	follow  bool
	since   time.Time
	next    int
	pending bytes.Buffer
	// left is how many bytes it gives before it breaks; -1 is all.
	left    int
	cleanly bool
}

var errBroken = errors.New("connection reset by peer")

func (stream *fakeStream) Read(into []byte) (int, error) {
	stream.cluster.lock.Lock()
	defer stream.cluster.lock.Unlock()
	for stream.pending.Len() == 0 {
		switch {
		case stream.ctx.Err() != nil:
			return 0, stream.ctx.Err()
		case stream.next < len(stream.run.lines):
			line := stream.run.lines[stream.next]
			stream.next++
			if !line.at.Before(stream.since) {
				fmt.Fprintf(&stream.pending, "%s %s\n", line.at.UTC().Format(time.RFC3339Nano), line.text)
			}
		case !stream.follow || stream.run.ended:
			return 0, io.EOF
		default:
			stream.cluster.changed.Wait()
		}
	}
	if stream.left == 0 {
		// Kubelet ends a stream that it reads to the end cleanly; only one that goes on
		// can look as if it were over.
		if stream.cleanly && stream.follow {
			return 0, io.EOF
		}
		return 0, errBroken
	}
	if stream.left > 0 {
		into = into[:min(len(into), stream.left)]
	}
	read, err := stream.pending.Read(into)
	if stream.left > 0 {
		stream.left -= read
	}
	return read, err
}

func (stream *fakeStream) Close() error { return nil }

// SPDX-License-Identifier: Apache-2.0

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
func (b *breaking) begin(name, role string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(fmt.Sprintf("%s-%d", name, b.dice.Uint64())), Labels: map[string]string{training.LabelReplicaType: role},
			CreationTimestamp: metav1.Unix(int64(1000+len(b.pods)), 0),
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure, Containers: []corev1.Container{{Name: "main"}, {Name: "side"}}},
	}
	setStatus(pod, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}, "")
	added := &fakePod{pod: pod}
	b.pods = append(b.pods, added)
	b.tell(watch.Added, added)
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

func (b *breaking) tell(what watch.EventType, pod *fakePod) {
	for _, watching := range b.watches {
		if !watching.IsStopped() {
			watching.Action(what, pod.pod.DeepCopy())
		}
	}
	b.changed.Broadcast()
}

func (b *breaking) find(name string) *fakePod {
	for _, pod := range b.pods {
		if pod.pod.Name == name {
			return pod
		}
	}
	return nil
}

// run starts the container, for the first time or anew.
func (b *breaking) run(name string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	pod := b.find(name)
	pod.runs = append(pod.runs, &fakeRun{})
	setStatus(pod.pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, runID(pod))
	pod.pod.Status.Phase = corev1.PodRunning
	b.tell(watch.Modified, pod)
}

func runID(pod *fakePod) string { return fmt.Sprintf("%s-run-%d", pod.pod.UID, len(pod.runs)) }

// write appends to the log of the container's run.
func (b *breaking) write(name string, lines ...stamped) {
	b.lock.Lock()
	defer b.lock.Unlock()
	pod := b.find(name)
	run := pod.runs[len(pod.runs)-1]
	run.lines = append(run.lines, lines...)
	b.changed.Broadcast()
}

// end ends the container's run, and the pod if it is not to be started anew.
func (b *breaking) end(name string, exitCode int32, phase corev1.PodPhase) {
	b.lock.Lock()
	defer b.lock.Unlock()
	pod := b.find(name)
	pod.runs[len(pod.runs)-1].ended = true
	setStatus(pod.pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exitCode, ContainerID: runID(pod)}}, runID(pod))
	pod.pod.Status.Phase = phase
	b.tell(watch.Modified, pod)
}

func (b *breaking) remove(name string) {
	b.lock.Lock()
	defer b.lock.Unlock()
	pod := b.find(name)
	b.pods = slices.DeleteFunc(b.pods, func(other *fakePod) bool { return other == pod })
	b.tell(watch.Deleted, pod)
}

// cutWatches ends every watch, as API servers do.
func (b *breaking) cutWatches() {
	b.lock.Lock()
	defer b.lock.Unlock()
	for _, watching := range b.watches {
		if !watching.IsStopped() {
			watching.Stop()
		}
	}
	b.watches = nil
}

func (b *breaking) List(context.Context) (*corev1.PodList, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	list := &corev1.PodList{}
	for _, pod := range b.pods {
		list.Items = append(list.Items, *pod.pod.DeepCopy())
	}
	return list, nil
}

// Watch begins with every pod there is: what changed since a List may be among it.
func (b *breaking) Watch(ctx context.Context, _ string) (watch.Interface, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	watching := watch.NewRaceFreeFake()
	for _, pod := range b.pods {
		watching.Action(watch.Modified, pod.pod.DeepCopy())
	}
	b.watches = append(b.watches, watching)
	context.AfterFunc(ctx, watching.Stop)
	return watching, nil
}

func (b *breaking) Get(_ context.Context, name string) (*corev1.Pod, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if pod := b.find(name); pod != nil {
		return pod.pod.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, name)
}

func (b *breaking) Worker(pod *corev1.Pod) (int32, bool) {
	_, text, _ := strings.Cut(pod.Name, "worker-")
	number, err := strconv.Atoi(strings.SplitN(text, "-", 2)[0])
	return int32(number), err == nil
}

func (b *breaking) Open(ctx context.Context, name string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	b.opened++
	if b.refuse != nil {
		if err := b.refuse(name, options); err != nil {
			return nil, err
		}
	}
	pod := b.find(name)
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
	opened := &fakeStream{cluster: b, ctx: ctx, run: runs[len(runs)-1], follow: options.Follow, left: -1}
	if opened.run.cleared {
		opened.pending.WriteString("unable to retrieve container logs for containerd://05718")
	}
	if options.SinceTime != nil {
		opened.since = time.Unix(options.SinceTime.Unix(), 0)
	}
	if options.TailLines != nil {
		opened.next = max(0, len(opened.run.lines)-int(*options.TailLines))
	}
	if b.longestStream > 0 {
		opened.left = b.dice.IntN(b.longestStream)
		opened.cleanly = b.dice.IntN(2) == 0
	}
	context.AfterFunc(ctx, b.changed.Broadcast)
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

func (fs *fakeStream) Read(into []byte) (int, error) {
	fs.cluster.lock.Lock()
	defer fs.cluster.lock.Unlock()
	for fs.pending.Len() == 0 {
		switch {
		case fs.ctx.Err() != nil:
			return 0, fs.ctx.Err()
		case fs.next < len(fs.run.lines):
			line := fs.run.lines[fs.next]
			fs.next++
			if !line.at.Before(fs.since) {
				fmt.Fprintf(&fs.pending, "%s %s\n", line.at.UTC().Format(time.RFC3339Nano), line.text)
			}
		case !fs.follow || fs.run.ended:
			return 0, io.EOF
		default:
			fs.cluster.changed.Wait()
		}
	}
	if fs.left == 0 {
		// Kubelet ends a stream that it reads to the end cleanly; only one that goes on
		// can look as if it were over.
		if fs.cleanly && fs.follow {
			return 0, io.EOF
		}
		return 0, errBroken
	}
	if fs.left > 0 {
		into = into[:min(len(into), fs.left)]
	}
	read, err := fs.pending.Read(into)
	if fs.left > 0 {
		fs.left -= read
	}
	return read, err
}

func (fs *fakeStream) Close() error { return nil }

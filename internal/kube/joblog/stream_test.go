// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

var begin = time.Unix(1700000000, 0)

func at(milliseconds int, text string) stamped {
	return stamped{at: begin.Add(time.Duration(milliseconds) * time.Millisecond), text: text}
}

// collect reads a stream to its end, which must come soon.
func collect(t *testing.T, cluster *breaking, selection Selection, options Options) (lines []Line, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for line, problem := range Stream(ctx, cluster, selection, options) {
		if problem != nil {
			return lines, problem
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func read(lines []Line) (texts []string) {
	for _, line := range lines {
		texts = append(texts, line.Pod+": "+line.Text)
	}
	return texts
}

// threePods have written something.
func threePods() *breaking {
	cluster := newBreaking(1, 0)
	for _, pod := range []string{"launcher", "worker-0", "worker-1"} {
		cluster.begin(pod, strings.SplitN(pod, "-", 2)[0])
		cluster.run(pod)
	}
	cluster.write("launcher", at(10, "reached"), at(40, "[0] loss"), at(50, "[1] loss"))
	cluster.write("worker-0", at(5, "here"), at(30, "logged in"))
	cluster.write("worker-1", at(0, "here"), at(20, "logged in"))
	return cluster
}

func TestStreamOnce(t *testing.T) {
	one, zero, two := 1, int32(0), int64(2)
	cases := map[string]struct {
		selection Selection
		options   Options
		want      []string
		wantErr   error
	}{
		"everything, by time": {want: []string{"worker-1: here", "worker-0: here", "launcher: reached", "worker-1: logged in", "worker-0: logged in", "launcher: [0] loss", "launcher: [1] loss"}},
		"the launcher":        {selection: Selection{Roles: []string{"launcher"}}, want: []string{"launcher: reached", "launcher: [0] loss", "launcher: [1] loss"}},
		"one worker":          {selection: Selection{Roles: []string{"worker"}, Worker: &zero}, want: []string{"worker-0: here", "worker-0: logged in"}},
		"one rank":            {selection: Selection{Roles: []string{"launcher"}, Rank: &one, Tags: mpi.MPICH}, want: []string{"launcher: [1] loss"}},
		"the end of each":     {options: Options{Tail: &two}, selection: Selection{Roles: []string{"launcher"}}, want: []string{"launcher: [0] loss", "launcher: [1] loss"}},
		"what is new":         {options: Options{Since: begin.Add(35 * time.Millisecond)}, want: []string{"launcher: [0] loss", "launcher: [1] loss"}},
		"no tags":             {selection: Selection{Roles: []string{"worker"}, Rank: &one, Tags: mpi.MPICH}, wantErr: &UntaggedError{Rank: 1}},
		"no such role":        {selection: Selection{Roles: []string{"initializer"}}, wantErr: &NoPodsError{Others: 3}},
		"no such container":   {selection: Selection{Container: "other"}, wantErr: &UnknownContainerError{Name: "other", Known: []string{"main", "side"}}},
		"nothing ran before":  {options: Options{Previous: true}, wantErr: &NoPreviousError{Pods: []string{"launcher", "worker-0", "worker-1"}}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			lines, err := collect(t, threePods(), test.selection, test.options)
			if diff := cmp.Diff(test.want, read(lines)); diff != "" {
				t.Error(diff)
			}
			if fmt.Sprintf("%#v", err) != fmt.Sprintf("%#v", test.wantErr) && diffErr(err, test.wantErr) {
				t.Errorf("the error is %#v, want %#v", err, test.wantErr)
			}
		})
	}
}

func diffErr(got, want error) bool { return !cmp.Equal(got, want) }

func TestPreviousRuns(t *testing.T) {
	cluster := newBreaking(1, 0)
	for _, pod := range []string{"launcher-a", "launcher-b", "worker-0"} {
		cluster.begin(pod, strings.SplitN(pod, "-", 2)[0])
		cluster.run(pod)
		cluster.write(pod, at(0, "first"))
		cluster.end(pod, 1, corev1.PodFailed)
	}
	cluster.run("worker-0")
	cluster.write("worker-0", at(100, "second"))
	newest, err := collect(t, cluster, Selection{}, Options{})
	if diff := cmp.Diff([]string{"launcher-b: first", "worker-0: second"}, read(newest)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	before, err := collect(t, cluster, Selection{}, Options{Previous: true})
	slices.SortFunc(before, func(a, b Line) int { return strings.Compare(a.Pod, b.Pod) })
	if diff := cmp.Diff([]string{"launcher-a: first", "worker-0: first"}, read(before)); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// Kubelet has no log any more, and says so where the log should be.
func TestAClearedLog(t *testing.T) {
	cluster := threePods()
	run := cluster.find("launcher").runs[0]
	run.lines, run.cleared = nil, true
	lines, err := collect(t, cluster, Selection{}, Options{})
	if len(lines) != 4 || err == nil || !strings.Contains(err.Error(), "the launcher (pod launcher), container main: its node has deleted the log") {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// A pod that has not started is told of, and does not hold the others up.
func TestNotStartedYet(t *testing.T) {
	cluster := threePods()
	cluster.begin("worker-2", "worker")
	var notices []string
	lines, err := collect(t, cluster, Selection{}, Options{Notify: func(text string) { notices = append(notices, text) }})
	if len(lines) != 7 || err != nil {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	if diff := cmp.Diff([]string{"worker 2 (pod worker-2) has no log yet: ContainerCreating"}, notices); diff != "" {
		t.Error(diff)
	}
}

func TestForbidden(t *testing.T) {
	for _, follow := range []bool{false, true} {
		cluster := threePods()
		cluster.refuse = func(pod string, _ *corev1.PodLogOptions) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, pod, errors.New("no"))
		}
		if _, err := collect(t, cluster, Selection{}, Options{Follow: follow}); !apierrors.IsForbidden(err) {
			t.Errorf("follow %v: the error is %v", follow, err)
		}
	}
}

// A line of several megabytes comes whole, in pieces.
func TestLongLines(t *testing.T) {
	long := strings.Repeat("0123456789", 1<<20)
	cluster := newBreaking(1, 0)
	cluster.begin("launcher", "launcher")
	cluster.run("launcher")
	cluster.write("launcher", at(0, "[1] "+long), at(1, strings.Repeat("y", 1<<20)))
	rank := 1
	lines, err := collect(t, cluster, Selection{Rank: &rank, Tags: mpi.MPICH}, Options{})
	var whole strings.Builder
	for i, line := range lines {
		whole.WriteString(line.Text)
		if line.Continues != (i < len(lines)-1) || line.Rank != 1 {
			t.Errorf("piece %d of rank %d continues: %v", i, line.Rank, line.Continues)
		}
	}
	if whole.String() != "[1] "+long || err != nil {
		t.Errorf("%d bytes in %d pieces, %v", whole.Len(), len(lines), err)
	}
}

// A reader that stops is no error, and nothing is left running behind it.
func TestAReaderThatStops(t *testing.T) {
	for _, follow := range []bool{false, true} {
		count := 0
		for range Stream(t.Context(), threePods(), Selection{}, Options{Follow: follow}) {
			if count++; count == 2 {
				break
			}
		}
	}
}

// storm lets a job live through everything at once, and returns what each run of
// each pod has written.
func storm(cluster *breaking, dice *rand.Rand) map[string][]string {
	var lock sync.Mutex
	written := map[string][]string{}
	var pods sync.WaitGroup
	live := func(pod string, runs int, dice *rand.Rand) {
		for run := range runs {
			cluster.run(pod)
			for i := range dice.IntN(60) {
				line := stamped{at: time.Now(), text: fmt.Sprintf("run %d line %d %s", run, i, strings.Repeat("z", dice.IntN(100)))}
				cluster.write(pod, line)
				lock.Lock()
				written[pod] = append(written[pod], line.text)
				lock.Unlock()
				// The time here stands still between two lines otherwise, which no kubelet's does.
				time.Sleep(time.Duration(dice.IntN(4))*time.Millisecond + time.Microsecond)
			}
			if run < runs-1 {
				cluster.end(pod, 1, corev1.PodRunning)
				// Kubelet waits before it starts a container anew.
				time.Sleep(700 * time.Millisecond)
			}
		}
		cluster.end(pod, 0, corev1.PodSucceeded)
	}
	for _, pod := range []string{"launcher-a", "worker-0", "worker-1", "worker-2"} {
		own := rand.New(rand.NewPCG(dice.Uint64(), 0))
		role := strings.SplitN(pod, "-", 2)[0]
		if pod != "worker-2" {
			cluster.begin(pod, role)
		}
		pods.Go(func() {
			time.Sleep(time.Duration(own.IntN(100)) * time.Millisecond)
			if pod == "worker-2" {
				cluster.begin(pod, role)
			}
			live(pod, 1+own.IntN(2), own)
			if pod == "launcher-a" {
				// The launcher's Job makes another pod.
				cluster.begin("launcher-b", role)
				live("launcher-b", 1, own)
			}
		})
	}
	for range 3 {
		time.Sleep(150 * time.Millisecond)
		cluster.cutWatches()
	}
	pods.Wait()
	return written
}

// Pods that come late, go, and start anew, streams and watches that break, all at
// once: every line comes once, in the order of its pod.
func TestFollowThroughAStorm(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { followThroughAStorm(t, seed) })
		})
	}
}

func followThroughAStorm(t *testing.T, seed uint64) {
	cluster := newBreaking(seed, 30000)
	ended := make(chan struct{})
	var written map[string][]string
	go func() {
		written = storm(cluster, rand.New(rand.NewPCG(seed, 2)))
		close(ended)
	}()
	lines, err := collect(t, cluster, Selection{}, Options{Follow: true, Ended: ended, Patience: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, line := range lines {
		got[line.Pod] = append(got[line.Pod], line.Text)
	}
	if diff := cmp.Diff(written, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

// A pod that runs on when the job has ended does not hold the reader up.
func TestTheJobEndsBeforeItsPods(t *testing.T) {
	cluster := threePods()
	ended := make(chan struct{})
	close(ended)
	lines, err := collect(t, cluster, Selection{}, Options{Follow: true, Ended: ended})
	if len(lines) != 7 || err != nil {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// A worker that is replaced by another of the same name is read once, although the
// watch that would tell of it is cut.
func TestAWorkerIsReplaced(t *testing.T) { synctest.Test(t, aWorkerIsReplaced) }

func aWorkerIsReplaced(t *testing.T) {
	cluster := newBreaking(1, 0)
	ended := make(chan struct{})
	go func() {
		for turn := range 4 {
			cluster.begin("worker-0", "worker")
			cluster.run("worker-0")
			cluster.write("worker-0", stamped{time.Now(), fmt.Sprint("turn ", turn, " begins")})
			time.Sleep(300 * time.Millisecond)
			cluster.write("worker-0", stamped{time.Now(), fmt.Sprint("turn ", turn, " ends")})
			cluster.end("worker-0", 1, corev1.PodFailed)
			time.Sleep(600 * time.Millisecond)
			if turn%2 == 1 {
				cluster.cutWatches()
			}
			if turn < 3 {
				cluster.remove("worker-0")
			}
		}
		close(ended)
	}()
	lines, err := collect(t, cluster, Selection{}, Options{Follow: true, Ended: ended})
	var want []string
	for turn := range 4 {
		want = append(want, fmt.Sprintf("worker-0: turn %d begins", turn), fmt.Sprintf("worker-0: turn %d ends", turn))
	}
	if diff := cmp.Diff(want, read(lines)); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// Only what was there when reading began is shortened.
func TestFollowFromTheEnd(t *testing.T) { synctest.Test(t, followFromTheEnd) }

func followFromTheEnd(t *testing.T) {
	cluster := newBreaking(1, 0)
	cluster.begin("launcher-a", "launcher")
	cluster.run("launcher-a")
	cluster.write("launcher-a", at(0, "one"), at(1, "two"), at(2, "three"))
	cluster.begin("worker-0", "worker")
	ended := make(chan struct{})
	go func() {
		time.Sleep(300 * time.Millisecond)
		cluster.run("worker-0")
		for _, pod := range []string{"worker-0", "launcher-b"} {
			if pod == "launcher-b" {
				cluster.begin(pod, "launcher")
				cluster.run(pod)
			}
			cluster.write(pod, at(1000, "four"), at(1001, "five"))
		}
		time.Sleep(300 * time.Millisecond)
		close(ended)
	}()
	lines, err := collect(t, cluster, Selection{}, Options{Follow: true, Ended: ended, Tail: new(int64(1))})
	got := read(lines)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"launcher-a: three", "launcher-b: five", "launcher-b: four", "worker-0: five", "worker-0: four"}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// A job whose pods are to come is waited for, and lines are handed on while it runs.
func TestFollowBeforeThereArePods(t *testing.T) { synctest.Test(t, followBeforeThereArePods) }

func followBeforeThereArePods(t *testing.T) {
	cluster := newBreaking(1, 0)
	ended := make(chan struct{})
	go func() {
		time.Sleep(50 * time.Millisecond)
		cluster.begin("launcher", "launcher")
		cluster.run("launcher")
		cluster.write("launcher", at(0, "hello"))
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for line, err := range Stream(ctx, cluster, Selection{}, Options{Follow: true, Ended: ended}) {
		if err != nil || line.Text != "hello" {
			t.Fatalf("%q, %v", line.Text, err)
		}
		break
	}
}

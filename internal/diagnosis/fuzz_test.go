package diagnosis

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// seenPods are pods as an API server would send them.
type seenPods struct {
	Launchers, Workers, Initializers []*corev1.Pod
	Workload, Fetching               Workload
	Suspended, Confirmed             bool
	Limit                            uint8
}

// FuzzOf feeds the diagnosis with pods that anybody might have written. Whatever
// comes, it does not panic, says the same twice, and leaves its input alone.
func FuzzOf(f *testing.F) {
	for _, row := range slices.Concat(workerFailures, waitingFailures, reportedFailures, launcherFailures, goneFailures) {
		for _, kind := range kinds {
			start := row.start
			if start == nil {
				start = runs
			}
			scene := startedScene(f, kind, start, row.options...)
			row.happen(scene)
			text, err := json.Marshal(seenPods{Launchers: scene.seen.Launchers, Workers: scene.seen.Workers, Workload: scene.seen.Workload, Confirmed: true})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text, uint16(present))
		}
	}
	f.Add([]byte(`{"Launchers":[{}],"Workers":[{},{"metadata":{"name":"train-worker-0"}}],"Initializers":[{"status":{"phase":"Failed"}}]}`), uint16(0))
	f.Fuzz(func(t *testing.T, text []byte, second uint16) {
		var pods seenPods
		if json.Unmarshal(text, &pods) != nil || len(pods.Launchers)+len(pods.Workers)+len(pods.Initializers) > 20 {
			return
		}
		isNil := func(pod *corev1.Pod) bool { return pod == nil }
		for _, kind := range kinds {
			for _, options := range [][]option{{backoffLimit(int32(pods.Limit))}, {initialized, deadline(10), timeToLive(5)}} {
				scene := newScene(t, kind, 3, options...)
				scene.settle()
				scene.made.Suspended = pods.Suspended
				scene.seen = Observed{
					Now: at(float64(second)), ImagePatience: time.Minute, Workload: pods.Workload, Fetching: pods.Fetching, Confirmed: pods.Confirmed,
					Launchers: slices.DeleteFunc(slices.Clone(pods.Launchers), isNil), Workers: slices.DeleteFunc(slices.Clone(pods.Workers), isNil),
					Initializers: slices.DeleteFunc(slices.Clone(pods.Initializers), isNil),
				}
				before := copyOf(scene.seen)
				atRest(t, scene)
				if diff := cmp.Diff(before.Launchers, scene.seen.Launchers) + cmp.Diff(before.Workers, scene.seen.Workers); diff != "" {
					t.Errorf("the pods were changed (-before +after):\n%s", diff)
				}
				WorkersRunning(scene.made, scene.seen)
				LauncherEnded(scene.made, scene.seen)
				EndsByItself(scene.made, scene.seen)
			}
		}
	})
}

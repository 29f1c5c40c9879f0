// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// seenPods are pods as an API server would send them.
type seenPods struct {
	Launchers, Workers, Initializers []*corev1.Pod
	Workload                         Workload
	Suspended, Confirmed             bool
	Limit, Restarts                  uint8
	QuotaWait, OlderWaits            bool
}

// FuzzOf runs the diagnosis with arbitrary pods. It must not panic, must be
// deterministic, and must not change its input.
func FuzzOf(f *testing.F) {
	for _, row := range slices.Concat(workerFailures, waitingFailures, reportedFailures, launcherFailures, deletionFailures) {
		for _, kind := range kinds {
			start := row.start
			if start == nil {
				start = runs
			}
			scene := startedScene(f, kind, start, row.options...)
			row.happen(scene)
			text, err := json.Marshal(seenPods{Launchers: scene.observed.Launchers, Workers: scene.observed.Workers, Workload: scene.observed.Workload, Confirmed: true})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text, uint16(present))
		}
	}
	f.Add([]byte(`{"Launchers":[{}],"Workers":[{},{"metadata":{"name":"train-worker-0"}}],"Initializers":[{"status":{"phase":"Failed"}}]}`), uint16(0))
	f.Add([]byte(`{"Launchers":[{"metadata":{"labels":{"training.kubeflow.org/restart":"1"}}}],"Workload":{"Exists":true},"Restarts":1,"Limit":2}`), uint16(40))
	f.Add([]byte(`{"Workers":[{"metadata":{"deletionTimestamp":"2026-03-01T10:00:00Z"}}],"Workload":{"Exists":true},"QuotaWait":true,"OlderWaits":true}`), uint16(70))
	f.Fuzz(func(t *testing.T, text []byte, second uint16) {
		var pods seenPods
		if json.Unmarshal(text, &pods) != nil || len(pods.Launchers)+len(pods.Workers)+len(pods.Initializers) > 20 {
			return
		}
		isNil := func(pod *corev1.Pod) bool { return pod == nil }
		for _, kind := range kinds {
			for _, options := range [][]option{{backoffLimit(int32(pods.Limit))}, {withInitializer, deadline(10), ttl(5)}} {
				scene := newScene(t, kind, 3, options...)
				scene.storeVerdict()
				for _, progress := range []*training.Progress{&scene.trainJob.Status.Progress, &scene.mpiJob.Status.Progress} {
					if pods.Restarts > 0 {
						progress.Restart = &training.Restart{Count: int32(pods.Restarts), Reason: training.FailureWorker, DueTime: stamp(30)}
					}
					if pods.QuotaWait {
						progress.QuotaWait = &training.QuotaWait{Name: "compute", Since: stamp(present), Message: "refused"}
					}
				}
				scene.job.Suspended = pods.Suspended
				scene.observed = Observed{
					Now: at(float64(second)), Timeouts: timeouts, Workload: pods.Workload, Confirmed: pods.Confirmed, OlderWaits: pods.OlderWaits,
					Launchers: slices.DeleteFunc(slices.Clone(pods.Launchers), isNil), Workers: slices.DeleteFunc(slices.Clone(pods.Workers), isNil),
					Initializers: slices.DeleteFunc(slices.Clone(pods.Initializers), isNil),
				}
				before := copyOf(scene.observed)
				checkUnchanged(t, scene)
				if diff := cmp.Diff(before.Launchers, scene.observed.Launchers) + cmp.Diff(before.Workers, scene.observed.Workers); diff != "" {
					t.Errorf("the pods were changed (-before +after):\n%s", diff)
				}
				WorkersRunning(scene.job, scene.previous(), scene.observed)
				LauncherEnded(scene.job, scene.previous(), scene.observed)
			}
		}
	})
}

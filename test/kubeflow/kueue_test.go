// SPDX-License-Identifier: Apache-2.0

package kubeflow

import (
	"fmt"
	"testing"
)

// queued creates a TrainJob of two pods in a queue.
func queued(t *testing.T, namespace, name, priority, command string) {
	t.Helper()
	shell(t, fmt.Sprintf(`bin/cluster kubectl apply -n %s -f - <<END
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: queue, kueue.x-k8s.io/priority-class: %s}}
spec:
  runtimeRef: {name: openmpi-trireme}
  trainer: {numNodes: 2, command: [%s]}
END`, namespace, name, priority, command))
}

// Kueue admits a TrainJob, stops it for one of a higher priority, and resumes it.
func TestKueue(t *testing.T) {
	space := namespace(t)
	shell(t, fmt.Sprintf(`printf 'apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: queue}\nspec: {clusterQueue: small}\n' | bin/cluster kubectl apply -n %s -f -`, space))
	runs := func(name string) {
		t.Helper()
		// Both pods of a start: kubectl waits only for what exists.
		shell(t, fmt.Sprintf(`for i in $(seq 120); do
			[[ $(bin/cluster kubectl get pods -n %[1]s -l jobset.sigs.k8s.io/jobset-name=%[2]s -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{end}') == TrueTrue ]] && exit 0
			sleep 1
		done
		bin/cluster kubectl describe workloads.kueue.x-k8s.io -n %[1]s
		exit 1`, space, name))
	}
	queued(t, space, "patient", "low", "mpirun, sleep, '3600'")
	runs("patient")
	queued(t, space, "urgent", "high", "mpirun, sleep, '20'")
	runs("urgent")
	stopped := shell(t, "bin/cluster kubectl get trainjobs.trainer.kubeflow.org/patient jobsets/patient -n "+space+
		` -o jsonpath='{range .items[*]}{.spec.suspend} {.status.conditions[?(@.type=="Suspended")].status} {end}'; bin/cluster kubectl get pods -n `+space+" -l jobset.sigs.k8s.io/jobset-name=patient -o name")
	if want := "true True true True "; stopped != want {
		t.Errorf("the TrainJob and the JobSet that were stopped are %q, want %q and no pods", stopped, want)
	}
	shell(t, "bin/cluster kubectl wait trainjobs.trainer.kubeflow.org/urgent --for=condition=Complete --timeout=240s -n "+space)
	runs("patient")
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

func TestJobsAreJudged(t *testing.T) {
	kubectl(t, "create namespace judged")
	// One of its jobs gives up after minutes, when another test may count what is written.
	t.Cleanup(func() { kubectl(t, "delete namespace judged --wait=false") })
	kubectl(t, "label namespace judged pod-security.kubernetes.io/enforce=restricted")
	kubectl(t, "apply -n judged -f test/manifests/mpijob/simple-mpijob.yaml")
	kubectl(t, "apply -n judged -f test/manifests/mpijob/volcano-scheduling.yaml")
	kubectl(t, "apply -f charts/trireme/files/runtimes")
	if jobs := kubectl(t, "get training -n judged"); !strings.Contains(jobs, "mpijob.kubeflow.org/simple-mpijob") {
		t.Errorf("kubectl get training does not show the job:\n%s", jobs)
	}
	refused(t, "patch mpijob simple-mpijob -n judged --type=merge -p '{\"spec\":{\"slotsPerWorker\":2}}'",
		`The MPIJob "simple-mpijob" is invalid: spec.slotsPerWorker: Forbidden: field is immutable`)
	kubectl(t, "delete mpijob simple-mpijob -n judged")

	eventually.Succeeds(t, "the audit", func() error {
		verbs := audited(t, "simple-mpijob")
		for _, want := range []string{"create allowed", "update refused", "delete allowed"} {
			if !strings.Contains(strings.Join(verbs, ", "), want) {
				return fmt.Errorf("it has %q, want %q among it", verbs, want)
			}
		}
		return nil
	})
}

// audited is what was done to an object, and how it was decided. Each replica of
// the operator writes what it was asked; the log has the lines of stderr too.
func audited(t *testing.T, name string) []string {
	t.Helper()
	var verbs []string
	for _, line := range strings.Split(kubectl(t, "logs deployment/trireme-operator -n trireme-system --all-pods"), "\n") {
		_, text, _ := strings.Cut(line, "] ")
		var entry struct{ Verb, Name, User, Decision string }
		if json.Unmarshal([]byte(text), &entry) == nil && entry.Name == name {
			verbs = append(verbs, entry.Verb+" "+entry.Decision)
			if entry.User == "" {
				t.Errorf("an audit line without a user: %s", line)
			}
		}
	}
	return verbs
}

// While nobody answers, nothing is stored; afterwards all goes on by itself, with
// the certificate that is in the Secret.
func TestNobodyAnswers(t *testing.T) {
	kubectl(t, "create namespace unanswered")
	// Its last job is larger than the machine: a gang that waits would hold what
	// other tests need.
	t.Cleanup(func() { kubectl(t, "delete namespace unanswered --wait=false") })
	kubectl(t, "apply -n unanswered -f test/manifests/mpijob/simple-mpijob.yaml")
	kubectl(t, "scale deployment/trireme-operator -n trireme-system --replicas=0")
	t.Cleanup(func() {
		kubectl(t, "scale deployment/trireme-operator -n trireme-system --replicas=2")
		kubectl(t, "rollout status deployment/trireme-operator -n trireme-system --timeout=120s")
	})
	kubectl(t, "wait --for=delete pod -l app.kubernetes.io/component=operator -n trireme-system --timeout=60s")
	refused(t, "apply -n unanswered -f test/manifests/mpijob/intel-mpi-job.yaml", `failed calling webhook "job-creator.kubeflow.org"`)
	if jobs := kubectl(t, "get mpijobs -n unanswered -o name"); jobs != "mpijob.kubeflow.org/simple-mpijob\n" {
		t.Errorf("stored unchecked: %s", jobs)
	}
	kubectl(t, "delete mpijob simple-mpijob -n unanswered")

	kubectl(t, "scale deployment/trireme-operator -n trireme-system --replicas=1")
	kubectl(t, "rollout status deployment/trireme-operator -n trireme-system --timeout=120s")
	eventually.Succeeds(t, "the job is accepted", func() error {
		output, err := shell("bin/cluster kubectl apply -n unanswered -f test/manifests/mpijob/intel-mpi-job.yaml")
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
}

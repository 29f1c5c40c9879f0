// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

const enforced = "NetworkPolicy objects are enforced"

// enforceNetworkPolicies restarts the cluster with enforcement, and without it after the
// test. It fails if the machine cannot enforce policies.
func enforceNetworkPolicies(t *testing.T) {
	t.Helper()
	needsLocalCluster(t, "the cluster is restarted")
	restart := func(up string) {
		if output, err := shell("bin/cluster down && " + up); err != nil {
			t.Fatalf("%s: %v\n%s", up, err, output)
		}
	}
	if status, _ := shell("bin/cluster status"); !strings.Contains(status, enforced) {
		t.Cleanup(func() {
			restart("bin/cluster up")
			waitForOperator(t)
		})
		restart("bin/cluster up --network-policies")
	}
	status, err := shell("bin/cluster status")
	if err != nil || !strings.Contains(status, enforced) {
		t.Fatalf("the cluster does not enforce policies: %v\n%s", err, status)
	}
	waitForOperator(t)
}

// waitForOperator waits until the operator has new pods after a restart of the cluster.
func waitForOperator(t *testing.T) {
	t.Helper()
	kubectl(t, "rollout status deployment --namespace trireme-system --timeout 3m")
	eventually.Succeeds(t, "the webhooks answer", func() error {
		output, err := shell("bin/cluster kubectl create --dry-run=server --filename test/manifests/mpijob/simple-mpijob.yaml")
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
}

// reaches reports whether a pod can connect to a pod's agent.
func reaches(t *testing.T, from, to corev1.Pod) bool {
	t.Helper()
	program := fmt.Sprintf(`import socket
try:
    socket.create_connection(("%s", %d), timeout=3).close()
    print("connected")
except TimeoutError:
    print("dropped")`, to.Status.PodIP, job.AgentPort)
	output := kubectl(t, fmt.Sprintf("exec --namespace %s %s -- python3 -c '%s'", from.Namespace, from.Name, program))
	switch strings.TrimSpace(output) {
	case "connected":
		return true
	case "dropped":
		return false
	}
	t.Fatalf("from %s to %s: %s", from.Name, to.Name, output)
	return false
}

var dropped = regexp.MustCompile(`counter packets ([0-9]+) bytes [0-9]+ drop`)

// dropsTo is the number of packets to a pod that the rules of its policies have dropped.
func dropsTo(t *testing.T, pod corev1.Pod) string {
	t.Helper()
	output, err := shell(fmt.Sprintf("nsenter --net=/run/netns/%s nft list chain ip network-policies Ingress-%s", os.Getenv("TRIREME_CLUSTER_NAME"), pod.Status.PodIP))
	found := dropped.FindStringSubmatch(output)
	if err != nil || found == nil {
		t.Fatalf("rules of pod %s: %v\n%s", pod.Name, err, output)
	}
	return found[1]
}

// Two jobs of one namespace run side by side and cannot reach each other.
func TestNetworkPoliciesSeparateJobs(t *testing.T) {
	if !isThorough() {
		t.Skip("it restarts the cluster twice: make test-all runs it")
	}
	enforceNetworkPolicies(t)
	t.Run("jobs without a policy reach each other", func(t *testing.T) {
		jobs := startPatient(t)
		if !reaches(t, jobs[0].pods(training.RoleWorker)[0], jobs[1].pods(training.RoleWorker)[0]) {
			t.Error("packets are dropped without a policy")
		}
		endWell(jobs)
	})
	t.Run("jobs with a policy do not", func(t *testing.T) {
		api, namespace := newNamespace(t)
		odh(t, 0, namespace, "namespace", "prepare", namespace, "--isolation", "Job")
		var jobs []*theJob
		for kind, object := range both(2, patient) {
			object.SetName(strings.ToLower(kind))
			withPolicy(object)
			jobs = append(jobs, submitTo(t, api, namespace, object))
		}
		for _, job := range jobs {
			job.waitForLog("all ranks are up")
		}
		for i, from := range jobs {
			own, other := from.pods(training.RoleWorker), jobs[1-i].pods(training.RoleWorker)
			if reaches(t, own[0], other[0]) {
				t.Errorf("%s reaches %s", own[0].Name, other[0].Name)
			}
			if drops := dropsTo(t, other[0]); drops == "0" {
				t.Errorf("the rules of %s have dropped nothing", other[0].Name)
			}
			if !reaches(t, own[0], own[1]) {
				t.Errorf("%s does not reach its own job", own[0].Name)
			}
		}
		endWell(jobs)
	})
}

func withPolicy(object client.Object) {
	policy := &training.NetworkPolicy{Template: training.NetworkPolicyDefault}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.NetworkPolicy = policy
	case *v2beta1.MPIJob:
		object.Spec.NetworkPolicy = policy
	}
}

// endWell ends patient jobs.
func endWell(jobs []*theJob) {
	for _, job := range jobs {
		job.t.Helper()
		job.release()
		job.succeeds()
	}
}

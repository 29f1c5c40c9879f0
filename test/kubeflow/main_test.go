// SPDX-License-Identifier: Apache-2.0

// Package kubeflow tests Trireme beside the real Kubeflow Trainer, on a local cluster of
// the tests' own, with the kubeflow SDK from PyPI, unchanged.
package kubeflow

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

// sdk is the environment with the SDK.
const sdk = "bin/kubeflow-sdk"

// start builds Trainer, and starts a cluster with it and with Trireme.
var start = []string{
	"bin/cluster up", "bin/cluster image mpi openmpi5",
	"CGO_ENABLED=0 GOFLAGS= nice -n 15 go build -C bench/peers/trainer -mod=readonly -buildvcs=false -ldflags '-s -w' -o ../../../bin/peers/trainer-static github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
	"bin/cluster image load bin/peers/trainer-static --as trireme.local/peers/trainer:dev",
	"mkdir -p bin/peers/modules && ln -sfn $(GOFLAGS= go list -C bench/peers/trainer -m -f '{{.Dir}}' github.com/kubeflow/trainer/v2) bin/peers/modules/trainer",
	// Files in the module's folder are outside of the kustomization's own.
	"bin/cluster kubectl kustomize --load-restrictor=LoadRestrictionsNone test/kubeflow/install/trainer | bin/cluster kubectl apply --server-side -f -",
	"make install",
	"bin/cluster kubectl wait --for=condition=Available deployment --all -n kubeflow-system --timeout=300s",
	sdk + "/bin/python -c 'import kubeflow.trainer' || { python3 -m venv " + sdk + " && " + sdk + "/bin/pip install --quiet kubeflow==0.5.0 kubeflow-trainer-api==2.3.0; }",
	// The webhook answers a moment after its pod is ready.
	"for i in $(seq 60); do bin/cluster kubectl apply -f test/kubeflow/testdata/runtimes.yaml && exit 0; sleep 2; done; exit 1",
	// One of Trainer's own, handed to Trireme, with an image that exists here.
	`sed 's|ghcr.io/kubeflow/trainer/deepspeed-runtime|trireme.local/openmpi:5|; s|^      network:|      managedBy: training.kubeflow.org/trireme\n&|' \
		bin/peers/modules/trainer/manifests/base/runtimes/deepspeed_distributed.yaml | bin/cluster kubectl apply -f -`,
	// Kueue, as test/peers builds and installs it. It looks for the kinds that it may queue
	// when it starts.
	"CGO_ENABLED=0 GOFLAGS= GOWORK=off nice -n 15 go build -C test/peers/build/kueue -mod=readonly -buildvcs=false -ldflags '-s -w' -o ../../../../bin/peers/kueue sigs.k8s.io/kueue/cmd/kueue",
	"ln -sfn $(GOFLAGS= GOWORK=off go list -C test/peers/build/kueue -m -f '{{.Dir}}' sigs.k8s.io/kueue) bin/peers/modules/kueue",
	"bin/cluster image load bin/peers/kueue --as trireme.local/peers/kueue:dev",
	"bin/cluster kubectl kustomize --load-restrictor=LoadRestrictionsNone test/kubeflow/install/kueue | bin/cluster kubectl apply --server-side -f -",
	`bin/cluster kubectl wait -n kueue-system --for=jsonpath='{.data.tls\.crt}' secret/kueue-webhook-server-cert --timeout=180s`,
	"bin/cluster kubectl annotate -n kueue-system pods --all trireme.local/certificate=there",
	"bin/cluster kubectl wait --for=condition=Available deployment --all -n kueue-system --timeout=300s",
	"for i in $(seq 60); do bin/cluster kubectl apply -f test/kubeflow/testdata/queue.yaml && exit 0; sleep 2; done; exit 1",
}

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Geteuid() != 0 && !localcluster.IsKept() {
		fmt.Fprintln(os.Stderr, "the tests start a cluster, which needs root")
		os.Exit(1)
	}
	os.Exit(localcluster.Run(m, "trireme-train", "10.184.0.0/16", start...))
}

func shell(t *testing.T, line string) string {
	t.Helper()
	output, err := localcluster.Shell(line)
	if err != nil {
		t.Fatalf("%s: %v\n%s\n%s", line, err, output, state())
	}
	return output
}

// state is what a failed test needs to be understood.
func state() string {
	output, err := localcluster.Shell(`bin/cluster kubectl get trainjobs.trainer.kubeflow.org,jobsets,pods -A -o wide
		bin/cluster kubectl get jobsets -A -o yaml | tail -c 6000
		bin/cluster kubectl get events -A --sort-by=.lastTimestamp | tail -30
		bin/cluster kubectl logs -n kubeflow-system deployment/kubeflow-trainer-controller-manager --tail 20
		bin/cluster kubectl logs -n trireme-system deployment/trireme-operator --tail 20`)
	if err != nil {
		return err.Error() + "\n" + output
	}
	return output
}

// namespace is a new one whose pods must be restricted.
func namespace(t *testing.T) string {
	t.Helper()
	name := "kubeflow-" + strings.ToLower(strings.TrimPrefix(t.Name(), "Test"))
	shell(t, fmt.Sprintf(`bin/cluster kubectl create namespace %[1]s
		bin/cluster kubectl label namespace %[1]s pod-security.kubernetes.io/enforce=restricted
		printf '#!/bin/sh\nexec python3 "$@"\n' | bin/cluster kubectl create configmap python -n %[1]s --from-file=python=/dev/stdin`, name))
	t.Cleanup(func() { shell(t, "bin/cluster kubectl delete namespace --wait=false "+name) })
	return name
}

// runSDK runs a command of testdata/sdk.py.
func runSDK(t *testing.T, command, namespace string) string {
	t.Helper()
	return shell(t, fmt.Sprintf(`eval "$(bin/cluster env)"; timeout 400 %s/bin/python test/kubeflow/testdata/sdk.py %s %s`, sdk, command, namespace))
}

func wantIn(t *testing.T, output string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(output, want) {
			t.Errorf("the output lacks %q:\n%s", want, output)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// peer is a program of others. build/NAME is the Go module that it is built
// from, install/NAME the kustomization that installs it.
type peer struct {
	name string
	// module holds its manifests.
	module    string
	programs  []program
	namespace string
	// started are lines to run when its pods have been created.
	started []string
}

// program is one binary of a peer, which becomes an image of the same name.
type program struct{ name, goPackage string }

// peers are in the order in which they are installed: Kueue's webhook is asked
// about every pod, also about those of the others.
var peers = []peer{
	{
		name: "kueue", module: "sigs.k8s.io/kueue", namespace: "kueue-system",
		programs: []program{{"kueue", "sigs.k8s.io/kueue/cmd/kueue"}},
		// Kueue makes the certificate of its webhooks and waits until it finds it in
		// its own volume. The kubelet puts it there after a minute or two, or as soon
		// as the pod changes.
		started: []string{
			`bin/cluster kubectl wait -n kueue-system --for=jsonpath='{.data.tls\.crt}' secret/kueue-webhook-server-cert --timeout=180s`,
			"bin/cluster kubectl annotate -n kueue-system pods --all trireme.local/certificate=there",
		},
	},
	{
		name: "scheduler-plugins", module: "sigs.k8s.io/scheduler-plugins", namespace: "scheduler-plugins",
		programs: []program{
			{"scheduler-plugins-scheduler", "sigs.k8s.io/scheduler-plugins/cmd/scheduler"},
			{"scheduler-plugins-controller", "sigs.k8s.io/scheduler-plugins/cmd/controller"},
		},
	},
	{
		name: "volcano", module: "volcano.sh/volcano", namespace: "volcano-system",
		programs: []program{
			{"volcano-scheduler", "volcano.sh/volcano/cmd/scheduler"},
			{"volcano-controllers", "volcano.sh/volcano/cmd/controller-manager"},
		},
	},
	{
		name: "kai", module: "github.com/NVIDIA/KAI-scheduler", namespace: "kai-scheduler",
		programs: []program{
			{"kai-scheduler", "github.com/NVIDIA/KAI-scheduler/cmd/scheduler"},
			{"kai-binder", "github.com/NVIDIA/KAI-scheduler/cmd/binder"},
		},
		started: []string{
			// KAI reads Kueue's topologies in a version that Kueue no longer serves.
			`bin/cluster kubectl patch crd topologies.kueue.x-k8s.io --type=json -p '[{"op": "add", "path": "/spec/versions/-", "value": {"name": "v1alpha1",
				"served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}]'`,
			"bin/cluster kubectl wait --for=condition=Established crd/queues.scheduling.run.ai --timeout=60s",
			"bin/cluster kubectl apply --server-side -f test/peers/install/kai/queues.yaml",
		},
	},
}

// build makes the peer's programs, of which go knows best what has changed, and
// links the folder of its module to where install/NAME expects it. Minutes, the
// first time; it stays behind whatever else the machine does.
func (peer peer) build() error {
	for _, program := range peer.programs {
		line := fmt.Sprintf("CGO_ENABLED=0 GOFLAGS= GOWORK=off nice -n 15 go build -C test/peers/build/%s -mod=readonly -buildvcs=false -ldflags '-s -w' -o ../../../../bin/peers/%s %s",
			peer.name, program.name, program.goPackage)
		if _, err := shell(line); err != nil {
			return fmt.Errorf("build %s: %w", program.name, err)
		}
	}
	directory, err := shell(fmt.Sprintf("GOFLAGS= GOWORK=off go list -C test/peers/build/%s -m -f '{{.Dir}}' %s", peer.name, peer.module))
	if err != nil {
		return fmt.Errorf("find the manifests of %s: %w", peer.name, err)
	}
	link := filepath.Join(repository, "bin", "peers", "modules", peer.name)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(link); err != nil {
		return err
	}
	return os.Symlink(strings.TrimSpace(directory), link)
}

// install starts the peer on the cluster and waits until it is ready.
func (peer peer) install() error {
	for _, program := range peer.programs {
		if _, err := shell(fmt.Sprintf("bin/cluster image load bin/peers/%[1]s --as trireme.local/peers/%[1]s:dev", program.name)); err != nil {
			return err
		}
	}
	// Files in the module's folder are outside of the kustomization's own.
	apply := fmt.Sprintf("bin/cluster kubectl kustomize --load-restrictor=LoadRestrictionsNone test/peers/install/%s | bin/cluster kubectl apply --server-side -f -", peer.name)
	if _, err := shell(apply); err != nil {
		return fmt.Errorf("install %s: %w", peer.name, err)
	}
	if err := lines(peer.started)(); err != nil {
		return fmt.Errorf("%s does not start: %w\n%s", peer.name, err, peer.state())
	}
	ready := fmt.Sprintf("bin/cluster kubectl wait --for=condition=Available deployment --all -n %s --timeout=180s", peer.namespace)
	if _, err := shell(ready); err != nil {
		return fmt.Errorf("%s does not get ready: %w\n%s", peer.name, err, peer.state())
	}
	return nil
}

// state is what there is to know about a peer that does not do what it should.
func (peer peer) state() string {
	output, err := shell(fmt.Sprintf(`bin/cluster kubectl describe pods -n %[1]s
		for pod in $(bin/cluster kubectl get pods -n %[1]s -o name); do
			echo "--- $pod"
			bin/cluster kubectl logs -n %[1]s $pod --tail 30 || true
		done`, peer.namespace))
	if err != nil {
		return err.Error()
	}
	return output
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// wire is a connection to the API server that can be cut.
type wire struct {
	lock sync.Mutex
	open map[net.Conn]bool
}

// cut breaks every connection, without a word to either side.
func (wire *wire) cut() (count int) {
	wire.lock.Lock()
	defer wire.lock.Unlock()
	for connection := range wire.open {
		_ = connection.(*net.TCPConn).SetLinger(0)
		_ = connection.Close()
		delete(wire.open, connection)
		count++
	}
	return count
}

func (wire *wire) serve(listener net.Listener, to string) {
	for {
		near, err := listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			_ = near.Close()
			continue
		}
		wire.lock.Lock()
		wire.open[near], wire.open[far] = true, true
		wire.lock.Unlock()
		for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
			go func() {
				_, _ = io.Copy(ends[0], ends[1])
				_ = ends[0].Close()
			}()
		}
	}
}

// wiredTo is a kubeconfig that leads to the API server by a wire.
func wiredTo(t *testing.T, kubeconfig string) (*wire, string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	cluster := config.Clusters[config.Contexts[config.CurrentContext].Cluster]
	server, err := url.Parse(cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	cluster.Server, cluster.TLSServerName = "https://"+listener.Addr().String(), server.Hostname()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	wire := &wire{open: map[net.Conn]bool{}}
	go wire.serve(listener, server.Host)
	return wire, file
}

// The connection to the API server breaks again and again, and each line of the job
// comes once.
func TestLogsFollowThroughBrokenConnections(t *testing.T) {
	t.Parallel()
	mpiJob := failFast(implementations[1].job(2, ""))
	mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command =
		[]string{"bash", "-c", `for i in $(seq 500); do echo attempt 1 line $i; sleep 0.04; done`}
	job := submit(t, mpiJob)
	job.waitForLog("line 1")
	command, stdout, stderr := odhCommand(t, job.namespace, "mpijob", "logs", "train", "--all", "-f")
	kubeconfig := ""
	for _, setting := range command.Env {
		if file, found := strings.CutPrefix(setting, "KUBECONFIG="); found {
			kubeconfig = file
		}
	}
	wire, file := wiredTo(t, kubeconfig)
	command.Env = append(os.Environ(), "KUBECONFIG="+file)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	running := &following{t: t, stdout: stdout, stderr: stderr, ended: make(chan error, 1)}
	go func() { running.ended <- command.Wait() }()
	// It must have begun; what cannot be read at all is another matter.
	stdout.waitFor(t, " line 1\n")
	cut := 0
	for range 8 {
		cut += wire.cut()
		time.Sleep(900 * time.Millisecond)
	}
	output, notes := running.end()
	if cut < 8 {
		t.Errorf("only %d connections were cut", cut)
	}
	job.succeeds()
	wantAttempts(t, output, 1, 500)
	for i := 1; i < 500; i++ {
		if strings.Index(output, fmt.Sprintf(" line %d\n", i)) > strings.Index(output, fmt.Sprintf(" line %d\n", i+1)) {
			t.Errorf("line %d comes before line %d", i+1, i)
		}
	}
	t.Logf("%d connections were cut; notes: %s", cut, notes)
}

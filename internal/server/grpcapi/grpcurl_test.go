// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
)

// grpcurl calls a local server with a client that only uses reflection.
func grpcurl(t *testing.T, address string, arguments ...string) string {
	t.Helper()
	program, err := filepath.Abs("../../../bin/grpcurl")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, append([]string{"-plaintext"}, arguments...)...)
	for i, argument := range command.Args {
		command.Args[i] = strings.ReplaceAll(argument, "ADDRESS", address)
	}
	said, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s (make bin/grpcurl makes the program)", err, said)
	}
	return string(said)
}

func TestReflectionClients(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	script := &scripted{}
	server := grpc.NewServer(Options()...)
	Register(server, script)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	for name, test := range map[string]struct {
		arguments []string
		want      []string
	}{
		"which services there are": {[]string{"ADDRESS", "list"}, []string{"training.MPIJobService\n", "training.TrainJobService\n", "training.JobService\n", "grpc.health.v1.Health\n"}},
		"which methods there are": {[]string{"ADDRESS", "list", "training.MPIJobService"}, []string{
			"training.MPIJobService.CreateMPIJob\n", "training.MPIJobService.DeleteMPIJob\n", "training.MPIJobService.GetMPIJob\n", "training.MPIJobService.GetMPIJobLogs\n",
			"training.MPIJobService.GetMPIJobStatus\n", "training.MPIJobService.ListMPIJobs\n", "training.MPIJobService.WatchMPIJobStatus\n",
		}},
		"what a message has": {[]string{"ADDRESS", "describe", "training.CreateMPIJobRequest"}, []string{"string namespace = 1;", ".training.MPIJobSpec spec = 2;"}},
		"how the server is":  {[]string{"ADDRESS", "grpc.health.v1.Health/Check"}, []string{`"status": "SERVING"`}},
		"a job that is created": {
			[]string{"-d", `{"namespace": "team", "name": "pi", "spec": {"slots_per_worker": 2, "runPolicy": {"suspend": true}, "other_fields": {"requireAllHosts": true}}}`, "ADDRESS", "training.MPIJobService/CreateMPIJob"},
			[]string{`"uid": "1-2-3"`, `"createdAt": "2026-01-31T12:00:00Z"`, `"slotsPerWorker": 2`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := grpcurl(t, listener.Addr().String(), test.arguments...)
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is missing in: %s", want, said)
				}
			}
		})
	}
}

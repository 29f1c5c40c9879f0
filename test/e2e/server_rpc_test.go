// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// grpcurl calls a method, and returns what it prints and whether it succeeded.
func (server *theServer) grpcurl(by user, method, message string) (string, error) {
	output, err := server.grpcurlCommand(by, method, message).CombinedOutput()
	return string(output), err
}

func (server *theServer) grpcurlCommand(by user, method, message string) *exec.Cmd {
	command := exec.Command("bin/grpcurl", "-cacert", server.authority, "-max-time", "90", "-H", "Authorization: Bearer "+by.token, "-d", "@", server.address, "training."+method)
	command.Dir, command.Stdin = repository, strings.NewReader(message)
	return command
}

// tells calls a method that goes on, until it has said a word.
func (server *theServer) tells(t *testing.T, by user, method, message, word string) {
	t.Helper()
	command, said := server.grpcurlCommand(by, method, message), &printed{}
	command.Stdout, command.Stderr = said, said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Process.Kill(); _ = command.Wait() }()
	said.waitFor(t, word)
}

// calls calls a method, and fails the test unless it answers with these words.
func (server *theServer) calls(t *testing.T, by user, method, message string, words ...string) {
	t.Helper()
	output, err := server.grpcurl(by, method, message)
	if err != nil {
		t.Errorf("%s %s: %v\n%s", method, message, err, output)
	}
	wantWords(t, method, output, words)
}

// refuses calls a method, and fails the test unless it is refused with these words.
func (server *theServer) refuses(t *testing.T, by user, method, message string, words ...string) {
	t.Helper()
	output, err := server.grpcurl(by, method, message)
	if err == nil {
		t.Errorf("%s %s is answered:\n%s", method, message, output)
	}
	wantWords(t, method, output, words)
}

func wantWords(t *testing.T, method, output string, words []string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(output, word) {
			t.Errorf("%s does not say %q:\n%.2000s", method, word, output)
		}
	}
}

// specs are jobs as clients of gRPC write them: two workers, and a program that says
// that it is up and then waits until all methods were called.
func specs() map[string]string {
	waiting := strings.Replace(waiting, "time.sleep(60)", "time.sleep(600)", 1)
	container := func(name, command string) string {
		return fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q%s,"resources":{"requests":{"cpu":"10m","memory":"64Mi"}}}],"other_fields":{"terminationGracePeriodSeconds":2}}}`,
			name, implementations[1].image, command)
	}
	program := fmt.Sprintf(`,"command":["mpirun","-np","2","python3","-c",%q]`, waiting)
	return map[string]string{
		"MPIJob": fmt.Sprintf(`{"slots_per_worker":1,"mpi_implementation":"OpenMPI","mpi_replica_specs":{"Launcher":{"replicas":1,"template":%s},"Worker":{"replicas":2,"template":%s}}}`,
			container("launcher", program), container("worker", "")),
		"TrainJob": fmt.Sprintf(`{"runtime_ref":{"kind":"TrainingRuntime","name":"runtime"},"trainer":{"num_nodes":2,"slots_per_worker":1,"image":%q,"command":["python3","-c",%q],
			"resources_per_node":{"requests":{"cpu":"10m","memory":"64Mi"}}},"launcher":{"resources":{"requests":{"cpu":"10m","memory":"64Mi"}}}}`, implementations[1].image, waiting),
	}
}

// Every method, called by grpcurl, which learns them from the server.
func TestServerRPC(t *testing.T) {
	t.Parallel()
	if output, err := shell("make bin/grpcurl"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	server, ada, bob := reachServer(t), newUser(t), newUser(t)
	for kind, spec := range specs() {
		t.Run(kind, func(t *testing.T) {
			one := fmt.Sprintf(`{"namespace":%q,"name":"over-rpc"}`, ada.namespace)
			either := fmt.Sprintf(`{"kind":%q,"namespace":%q,"name":"over-rpc"}`, kind, ada.namespace)
			create := fmt.Sprintf(`{"namespace":%q,"name":"over-rpc","spec":%s}`, ada.namespace, spec)
			family := kind + "Service."
			server.refuses(t, ada, family+"Create"+kind, `{"spec":{}}`, "InvalidArgument", "namespace is required")
			server.refuses(t, ada, family+"Create"+kind, fmt.Sprintf(`{"namespace":%q}`, ada.namespace), "InvalidArgument", "spec is required")
			server.refuses(t, bob, family+"Create"+kind, create, "PermissionDenied", bob.name)
			server.calls(t, ada, "JobService.Preflight", fmt.Sprintf(`{"namespace":%q,"job":{%q:{"name":"over-rpc","spec":%s}}}`, ada.namespace, strings.ToLower(kind), spec), `"checks"`)
			server.calls(t, ada, family+"Create"+kind, create, `"uid"`, `"over-rpc"`)
			server.refuses(t, ada, family+"Create"+kind, create, "AlreadyExists")
			server.calls(t, ada, family+"Get"+kind, one, `"over-rpc"`, implementations[1].image)
			eventually.Succeeds(t, "the job runs", func() error {
				if output, err := server.grpcurl(ada, family+"Get"+kind+"Status", one); err != nil || !strings.Contains(output, `"phase": "Running"`) {
					return fmt.Errorf("%v: %s", err, output)
				}
				return nil
			})
			server.calls(t, ada, family+"List"+kind+"s", fmt.Sprintf(`{"namespace":%q,"limit":1}`, ada.namespace), `"over-rpc"`)
			eventually.Succeeds(t, "the job says that it is up", func() error {
				if output, err := server.grpcurl(ada, family+"Get"+kind+"Logs", fmt.Sprintf(`{"namespace":%q,"name":"over-rpc","pod_type":"launcher"}`, ada.namespace)); err != nil || !strings.Contains(output, "all ranks are up") {
					return fmt.Errorf("%v: %s", err, output)
				}
				return nil
			})
			server.refuses(t, ada, family+"Get"+kind+"Logs", fmt.Sprintf(`{"namespace":%q,"name":"over-rpc","pod_type":"driver"}`, ada.namespace), "InvalidArgument", "pod_type must be 'launcher' or 'worker'")
			server.refuses(t, bob, family+"Get"+kind+"Logs", one, "PermissionDenied")
			server.refuses(t, bob, family+"Watch"+kind+"Status", one, "PermissionDenied")
			server.tells(t, ada, family+"Watch"+kind+"Status", one, `"ADDED"`)
			server.tells(t, ada, "JobService.WatchJobs", fmt.Sprintf(`{"kind":%q,"namespace":%q}`, kind, ada.namespace), `"SYNCED"`)
			eventually.Succeeds(t, "the operator has told of the job", func() error {
				if output, err := server.grpcurl(ada, "JobService.ListEvents", either); err != nil || !strings.Contains(output, "JobSubmitted") {
					return fmt.Errorf("%v: %s", err, output)
				}
				return nil
			})
			server.calls(t, ada, "JobService.GetUsage", either, `"source"`)
			server.calls(t, ada, "JobService.Diagnose", either, `"state": "Running"`)
			server.refuses(t, ada, "JobService.Restart", either, "must be in Failed state")
			server.calls(t, ada, "JobService.Suspend", either, `"suspend": true`)
			server.calls(t, ada, "JobService.Resume", either, `"over-rpc"`)
			server.refuses(t, bob, family+"Delete"+kind, one, "PermissionDenied")
			server.calls(t, ada, family+"Delete"+kind, one, kind+" over-rpc deleted successfully")
		})
	}
	server.calls(t, ada, "JobService.GetQuota", fmt.Sprintf(`{"namespace":%q}`, ada.namespace), ada.namespace)
	server.calls(t, ada, "JobService.ListRuntimes", fmt.Sprintf(`{"namespace":%q}`, ada.namespace), "mpi-openmpi-cpu", `"TrainingRuntime"`)
	server.calls(t, ada, "JobService.GetRuntime", `{"name":"mpi-openmpi-cpu"}`, "ClusterTrainingRuntime")
	server.refuses(t, user{token: "nobody's"}, "JobService.GetRuntime", `{"name":"mpi-openmpi-cpu"}`, "Unauthenticated")
}

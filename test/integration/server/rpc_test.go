// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	wire "github.com/trireme-mpi/trireme/api/grpc/training"
	"github.com/trireme-mpi/trireme/internal/testing/surface"
)

// dial is a connection of gRPC that believes the server's own certificate.
func (program *program) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	return surface.Dial(t, strings.TrimPrefix(program.url, "https://"), &tls.Config{InsecureSkipVerify: true})
}

// Every method is tried without a token, with a wrong one, and across the border of a
// namespace; and within it, so that what is refused is the border.
func TestNobodyCrossesTheBorderOverRPC(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane, max := cluster.person(t, "jane"), cluster.person(t, "max")
	program := cluster.startServer(t, "--requests-per-second=10000", "--burst=10000", "--unauthenticated-burst=10000")
	connection := program.dial(t)
	for _, kind := range []struct{ resource, body string }{{"mpijobs", simpleMPIJob("secret-plan")}, {"trainjobs", simpleTrainJob("secret-plan")}} {
		if got := ask(t, "POST", program.url+"/api/v1/namespaces/"+max.namespace+"/"+kind.resource, max.token, strings.NewReader(kind.body)); got.code != 201 {
			t.Fatalf("%d %s", got.code, got.body)
		}
	}
	for _, method := range surface.Methods(t, connection, jane.token) {
		t.Run(string(method.FullName()), func(t *testing.T) {
			message := surface.Request(t, method, "MPIJob", max.namespace, "secret-plan")
			for who, token := range map[string]string{"nobody": "", "somebody with a wrong token": "abc"} {
				if answer, err := surface.Call(t, connection, token, method, message); status.Code(err) != codes.Unauthenticated {
					t.Errorf("%s: %s %v", who, answer, err)
				}
			}
			answer, err := surface.Call(t, connection, jane.token, method, message)
			switch {
			case method.Name() == "Preflight":
				// It tells what one may not do, and nothing of what is there.
				if err != nil || !strings.Contains(answer, "You may not create trainjobs") {
					t.Errorf("%s %v", answer, err)
				}
			case status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), jane.user()) || !strings.Contains(err.Error(), max.namespace):
				t.Errorf("across the border: %s %v", answer, err)
			}
			if method.Name() == "GetQuota" {
				// The roles of jobs have no right to quotas, wherever.
				return
			}
			if _, err := surface.Call(t, connection, jane.token, method, surface.Request(t, method, "MPIJob", jane.namespace, "own")); status.Code(err) == codes.PermissionDenied || status.Code(err) == codes.Unauthenticated {
				t.Errorf("in her own namespace: %v", err)
			}
		})
	}
}

// watchOverRPC watches the jobs of a person, and says how that ended.
func watchOverRPC(t *testing.T, connection *grpc.ClientConn, person *person) <-chan string {
	t.Helper()
	watching, err := wire.NewJobServiceClient(connection).WatchJobs(surface.WithToken(t.Context(), person.token), &wire.WatchJobsRequest{Kind: "MPIJob", Namespace: person.namespace})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watching.Header(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		for {
			if _, err := watching.Recv(); err != nil {
				ended <- err.Error()
				return
			}
		}
	}()
	return ended
}

// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/trireme-mpi/trireme/internal/server/operation"
)

// The table of operations has exactly the methods that are registered.
func TestEachMethodHasARow(t *testing.T) {
	server := grpc.NewServer(Options()...)
	Register(server, nil)
	registered, inTable := map[string]bool{}, map[string]bool{}
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			registered["/"+service+"/"+method.Name] = method.IsClientStream || method.IsServerStream
		}
	}
	for _, row := range operation.Table {
		if strings.HasPrefix(row.Call, "/") {
			inTable[row.Call] = row.Stream == operation.AlwaysStream
		}
	}
	if diff := cmp.Diff(registered, inTable); diff != "" {
		t.Errorf("methods and whether they are streams, registered (-) and in the table of operations (+):\n%s", diff)
	}
}

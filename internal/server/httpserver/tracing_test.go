// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// traces collects the names of spans, like an OpenTelemetry collector.
type traces struct {
	collector.UnimplementedTraceServiceServer
	mutex sync.Mutex
	names []string
}

// Export is called by the server under test.
func (t *traces) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				t.names = append(t.names, span.Name)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestTracing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	collecting, collected := grpc.NewServer(), &traces{}
	collector.RegisterTraceServiceServer(collecting, collected)
	go func() { _ = collecting.Serve(listener) }()
	t.Cleanup(collecting.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())

	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	if got := running.do(t, http.MethodGet, "/api/v1/namespaces/n/mpijobs/hello", "jane", nil); got.code != 200 {
		t.Fatal(got.code)
	}
	var answer wrapperspb.StringValue
	if err := running.dial(t).Invoke(as(t, "jane"), "/training.MPIJobService/GetMPIJob", wrapperspb.String("hello"), &answer); err != nil {
		t.Fatal(err)
	}
	// The remaining spans are exported when the server ends.
	running.stop()
	running.await(t)
	collected.mutex.Lock()
	defer collected.mutex.Unlock()
	for _, want := range []string{"GET /api/v1/namespaces/{namespace}/mpijobs/{name}", "training.MPIJobService/GetMPIJob"} {
		if !slices.Contains(collected.names, want) {
			t.Errorf("no span %q in %q", want, collected.names)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// A thousand streams leak nothing, over HTTP and over gRPC.
func TestStreamsDoNotLeak(t *testing.T) {
	const streams = 1000
	running := start(t, api(), func(options *Options) {
		options.RegisterGRPC, options.Limits = registerJobs, Limits{Rate: 1e6, Burst: 1e6, Streams: 2 * streams}
	})
	connection := running.dial(t)
	client := &http.Client{Transport: &http.Transport{}}
	overHTTP := func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+running.address+"/api/v1/watch/namespaces/n/mpijobs", nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer jane")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.ReadFull(response.Body, make([]byte, len("watching")))
		return err
	}
	overRPC := func(ctx context.Context) error {
		stream, err := connection.NewStream(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer jane"), &grpc.StreamDesc{ServerStreams: true}, "/training.MPIJobService/WatchMPIJobStatus")
		if err != nil {
			return err
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		return stream.RecvMsg(&wrapperspb.StringValue{})
	}
	openAndClose := func(count int) {
		t.Helper()
		var opening sync.WaitGroup
		for range 20 {
			opening.Go(func() {
				for range count / 20 {
					for name, open := range map[string]func(context.Context) error{"HTTP": overHTTP, "gRPC": overRPC} {
						ctx, cancel := context.WithCancel(t.Context())
						if err := open(ctx); err != nil {
							t.Errorf("over %s: %v", name, err)
						}
						cancel()
					}
				}
			})
		}
		opening.Wait()
		client.CloseIdleConnections()
		eventually.Holds(t, "all streams have ended", func() bool {
			running.users.mutex.Lock()
			defer running.users.mutex.Unlock()
			return running.users.users["jane"].streams == 0
		})
	}
	openAndClose(20)
	time.Sleep(100 * time.Millisecond)
	before := runtime.NumGoroutine()
	openAndClose(streams)
	eventually.Holds(t, fmt.Sprintf("there are %d goroutines, as before", before), func() bool { return runtime.NumGoroutine() <= before+10 })
}

// balancer works like a Service: each connection goes to a ready server.
type balancer struct {
	address string
	servers [2]atomic.Pointer[running]
	next    atomic.Int32
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	made := &balancer{address: listener.Addr().String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go made.forward(client)
		}
	}()
	return made
}

func (b *balancer) forward(client net.Conn) {
	defer client.Close()
	for range b.servers {
		chosen := b.servers[int(b.next.Add(1))%len(b.servers)].Load()
		if chosen == nil || chosen.health.stopping.Load() {
			continue
		}
		server, err := net.Dial("tcp", chosen.address)
		if err != nil {
			return
		}
		defer server.Close()
		go func() { _, _ = io.Copy(server, client); server.Close() }()
		_, _ = io.Copy(client, server)
		return
	}
}

// Two servers are replaced one after another, three times, while clients send requests. No
// request fails, over HTTP/1.1 with a body or over gRPC.
func TestRestartUnderLoad(t *testing.T) {
	balancer := newBalancer(t)
	launch := func() *running {
		return start(t, api(), func(options *Options) {
			options.RegisterGRPC, options.Limits, options.Grace = registerJobs, Limits{Rate: 1e6, Burst: 1e6, Streams: 1}, time.Second
		})
	}
	for i := range balancer.servers {
		balancer.servers[i].Store(launch())
	}
	ctx, stop := context.WithCancel(t.Context())
	var calls, failed atomic.Int64
	var calling sync.WaitGroup
	call := func(name string, call func(context.Context) error) {
		calling.Go(func() {
			for ctx.Err() == nil {
				calls.Add(1)
				if err := call(t.Context()); err != nil && failed.Add(1) < 5 {
					t.Errorf("over %s: %v", name, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	for range 4 {
		client := &http.Client{Transport: &http.Transport{}}
		call("HTTP/1.1", func(ctx context.Context) error { return createOverHTTP(ctx, client, balancer.address) })
		connection, err := grpc.NewClient(balancer.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		call("gRPC", func(ctx context.Context) error {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer jane")
			return connection.Invoke(ctx, "/training.MPIJobService/CreateMPIJob", wrapperspb.String("x"), &wrapperspb.StringValue{})
		})
	}
	for range 3 {
		for i := range balancer.servers {
			time.Sleep(200 * time.Millisecond)
			old := balancer.servers[i].Load()
			fresh := launch()
			old.stop()
			old.await(t)
			balancer.servers[i].Store(fresh)
		}
	}
	stop()
	calling.Wait()
	t.Logf("%d calls, %d failed", calls.Load(), failed.Load())
	// A busy machine makes fewer requests, but some during each restart.
	if failed.Load() > 0 || calls.Load() < 100 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
}

func createOverHTTP(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/api/v1/namespaces/n/mpijobs", strings.NewReader("{}"))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer jane")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusCreated {
		return errors.New(response.Status)
	}
	return nil
}

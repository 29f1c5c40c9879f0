// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// The server does not wait for an announced body that is not sent, with and without
// authentication, and with any other headers.
func TestBodyNeverSent(t *testing.T) {
	for name, headers := range map[string]string{
		"nobody": "", "somebody": "Authorization: Bearer jane\r\n", "as a stream": "Accept: text/event-stream\r\n", "as a WebSocket": "Upgrade: websocket\r\nConnection: Upgrade\r\n",
	} {
		for _, method := range []string{"POST", "GET"} {
			t.Run(method+" of "+name, func(t *testing.T) {
				running := start(t, api(), nil)
				running.bodyTimeout = 200 * time.Millisecond
				connection, err := net.Dial("tcp", running.address)
				if err != nil {
					t.Fatal(err)
				}
				defer connection.Close()
				fmt.Fprintf(connection, "%s /api/v1/namespaces/n/mpijobs HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 100\r\n\r\n", method, headers)
				if err := connection.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, connection); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
					t.Errorf("the server still waits: %v", err)
				}
			})
		}
	}
}

func isTimeout(err error) bool {
	timeout, is := errors.AsType[net.Error](err)
	return is && timeout.Timeout()
}

// The server reads nothing of a gRPC call before authentication.
func TestNoReadBeforeAuthentication(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	for _, method := range []string{"/training.MPIJobService/CreateMPIJob", "/training.MPIJobService/WatchMPIJobStatus", "/invented.Service/Method"} {
		stream, err := running.dial(t).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", method, err)
		}
	}
	if got := lines(t, running.audit); len(got) != 1 || got[0]["verb"] != "create" || got[0]["code"] != 401.0 {
		t.Errorf("the audit has %v", got)
	}
}

// A client that sends more than one message is not read any further: gRPC would buffer all
// of it.
func TestEndlessMessages(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	ctx, cancel := context.WithCancel(as(t, "jane"))
	defer cancel()
	stream, err := running.dial(t).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/training.MPIJobService/WatchMPIJobStatus")
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	go func() {
		message := wrapperspb.String(strings.Repeat("x", 1<<20))
		for stream.SendMsg(message) == nil {
			sent.Add(1 << 20)
		}
	}()
	time.Sleep(2 * time.Second)
	// The rest is in windows and buffers.
	if sent.Load() > maxBody+4<<20 {
		t.Errorf("%d MiB were taken", sent.Load()>>20)
	}
}

// Calls that gRPC refuses by itself are in the audit log once.
func TestAuditOfCallsRefusedByGRPC(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	connection := running.dial(t)
	var answer wrapperspb.StringValue
	if err := connection.Invoke(as(t, "jane"), "/training.MPIJobService/CreateMPIJob", wrapperspb.String(strings.Repeat("x", maxBody+1)), &answer); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	// Only from here on: the large message before needs more time.
	patient := running.messageTimeout
	running.messageTimeout = 200 * time.Millisecond
	stalled, err := connection.NewStream(as(t, "max"), &grpc.StreamDesc{}, "/training.MPIJobService/CreateMPIJob")
	if err != nil {
		t.Fatal(err)
	}
	if err := stalled.RecvMsg(&answer); err == nil {
		t.Error("a call without a message was answered")
	}
	running.messageTimeout = patient
	if err := connection.Invoke(as(t, "jane"), "/training.MPIJobService/CreateAnything", wrapperspb.String("x"), &answer); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
	eventually.Holds(t, "both are in the audit", func() bool { return strings.Count(running.audit.String(), "\n") >= 2 })
	var got []string
	for _, line := range lines(t, running.audit) {
		got = append(got, fmt.Sprint(line["user"], " ", line["verb"], " ", line["code"], " ", line["result"]))
	}
	if difference := cmp.Diff([]string{"jane create 413 refused", "max create 503 failed"}, got); difference != "" {
		t.Error(difference)
	}
}

// A call whose client disconnects is recorded once, when it has finished.
func TestAuditAfterDisconnect(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	running := start(t, api(), func(options *Options) {
		options.RegisterGRPC = func(server *grpc.Server) {
			server.RegisterService(&grpc.ServiceDesc{ServiceName: "training.MPIJobService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
				method("CreateMPIJob", func(ctx context.Context, _ string) (string, error) {
					close(begun)
					<-ctx.Done()
					close(ended)
					return "", ctx.Err()
				}),
			}}, nil)
		}
	})
	ctx, leave := context.WithCancel(as(t, "jane"))
	go func() { <-begun; leave() }()
	if err := running.dial(t).Invoke(ctx, "/training.MPIJobService/CreateMPIJob", wrapperspb.String("x"), &wrapperspb.StringValue{}); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	<-ended
	eventually.Holds(t, "the call is in the audit", func() bool { return strings.Contains(running.audit.String(), "\n") })
	if got := lines(t, running.audit); len(got) != 1 || got[0]["code"] != 499.0 {
		t.Errorf("the audit has %v", got)
	}
}

// REST and gRPC both send Retry-After.
func TestGRPCRetryAfter(t *testing.T) {
	running := start(t, api(), func(options *Options) {
		options.RegisterGRPC, options.Limits = registerJobs, Limits{Rate: 0.001, Burst: 1, Streams: 1}
	})
	connection := running.dial(t)
	var header metadata.MD
	for range 2 {
		_ = connection.Invoke(as(t, "jane"), "/training.MPIJobService/GetMPIJob", wrapperspb.String("x"), &wrapperspb.StringValue{}, grpc.Header(&header))
	}
	if after := header.Get("retry-after"); len(after) != 1 || !isAboutThousand(after[0]) || len(header.Get("x-request-id")) != 1 {
		t.Errorf("%v", header)
	}
}

// A response that exceeds the memory budget is refused in the same way.
func TestGRPCRetryAfterBudget(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	var header metadata.MD
	err := running.dial(t).Invoke(as(t, "jane"), "/training.MPIJobService/CreateMPIJob", wrapperspb.String("too-much"), &wrapperspb.StringValue{}, grpc.Header(&header))
	if after := header.Get("retry-after"); status.Code(err) != codes.ResourceExhausted || len(after) != 1 || after[0] != "1" {
		t.Errorf("%v, %v", err, header)
	}
}

// A gRPC client that does not read is disconnected and releases its stream.
func TestGRPCStreamNotRead(t *testing.T) {
	running := start(t, api(), func(options *Options) {
		options.RegisterGRPC = func(server *grpc.Server) {
			server.RegisterService(&grpc.ServiceDesc{ServiceName: "training.MPIJobService", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
				StreamName: "GetMPIJobLogs", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
					for {
						if err := stream.SendMsg(wrapperspb.String(strings.Repeat("x", 1<<20))); err != nil {
							return err
						}
					}
				},
			}}}, nil)
		}
	})
	running.writeTimeout = 200 * time.Millisecond
	stream, err := running.dial(t).NewStream(as(t, "jane"), &grpc.StreamDesc{ServerStreams: true}, "/training.MPIJobService/GetMPIJobLogs")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "the stream is cut off", func() bool {
		running.users.mutex.Lock()
		defer running.users.mutex.Unlock()
		jane := running.users.users["jane"]
		return jane != nil && jane.streams == 0
	})
}

// If tokens cannot be checked, streams do not end immediately, but not never.
func TestUnverifiedStreams(t *testing.T) {
	running := start(t, api(), nil)
	running.maxUnverified = 500 * time.Millisecond
	_, watching := running.open(t, "jane")
	wantLine(t, watching, "watching")
	begun := time.Now()
	running.guard.refuse("jane", errors.New("the API server is away"))
	line, err := watching.ReadString('\n')
	if took := time.Since(begun); took < running.maxUnverified || err != io.EOF {
		t.Errorf("%q (%v) after %s", line, err, took)
	}
}

// TLS 1.2 suites without authenticated encryption, and older versions, are refused.
func TestOldTLS(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.TLS = &TLS{} })
	for name, test := range map[string]struct {
		config *tls.Config
		good   bool
	}{
		"TLS 1.1":               {config: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}},
		"TLS 1.2 with CBC":      {config: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}}},
		"TLS 1.2 with ChaCha20": {config: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256}}},
		"TLS 1.2 with GCM":      {config: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}, good: true},
		"TLS 1.3":               {config: &tls.Config{MinVersion: tls.VersionTLS13}, good: true},
	} {
		t.Run(name, func(t *testing.T) {
			test.config.InsecureSkipVerify = true
			connection, err := tls.Dial("tcp", running.address, test.config)
			if err == nil {
				connection.Close()
			}
			if (err == nil) != test.good {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestInvalidOrigins(t *testing.T) {
	for _, origin := range []string{"null", "*", "dashboard.example", "https://dashboard.example/path"} {
		if _, err := New(Options{Origins: []string{origin}, Registry: prometheus.NewRegistry()}); err == nil || !strings.Contains(err.Error(), origin) {
			t.Errorf("%s is allowed: %v", origin, err)
		}
	}
}

// A page of another origin is refused over gRPC as well.
func TestOriginsOverGRPC(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	ctx := metadata.AppendToOutgoingContext(as(t, "jane"), "origin", "https://evil.example")
	err := running.dial(t).Invoke(ctx, "/training.MPIJobService/GetMPIJob", wrapperspb.String("x"), &wrapperspb.StringValue{})
	if err == nil || !strings.Contains(err.Error(), "is not allowed to send requests to this server") {
		t.Errorf("%v", err)
	}
}

// gRPC over HTTP/1.1 is handled like any other request.
func TestGRPCOverHTTP1(t *testing.T) {
	running := start(t, api(), func(options *Options) { options.RegisterGRPC = registerJobs })
	if got := running.do(t, http.MethodPost, "/training.MPIJobService/CreateMPIJob", "jane", strings.NewReader("\x00\x00\x00\x00\x00"), "Content-Type", "application/grpc"); got.code != 404 {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// Many large bodies at the same time are refused, and only count while they are in
// progress; small ones do not count.
func TestManyLargeBodies(t *testing.T) {
	hold := make(chan struct{})
	var held atomic.Int32
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hold", func(_ http.ResponseWriter, request *http.Request) {
		_, _ = io.ReadAll(request.Body)
		held.Add(1)
		<-hold
	})
	running := start(t, mux, func(options *Options) {
		options.RegisterGRPC = func(server *grpc.Server) {
			server.RegisterService(&grpc.ServiceDesc{ServiceName: "training.MPIJobService", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
				method("CreateMPIJob", func(context.Context, string) (string, error) { held.Add(1); <-hold; return "", nil }),
			}}, nil)
		}
	})
	connection := running.dial(t)
	large := strings.Repeat("x", smallBody+1)
	post := func(user, body string) int {
		return running.do(t, http.MethodPost, "/hold", user, strings.NewReader(body)).code
	}
	invoke := func(user, message string) error {
		return connection.Invoke(as(t, user), "/training.MPIJobService/CreateMPIJob", wrapperspb.String(message), &wrapperspb.StringValue{})
	}
	var sending sync.WaitGroup
	for range maxLargeBodies / 2 {
		sending.Go(func() { post("jane", large) })
		sending.Go(func() {
			if err := invoke("jane", large); err != nil {
				t.Error(err)
			}
		})
	}
	for range 20 {
		sending.Go(func() { post("jane", "small") })
	}
	sending.Go(func() { post("max", large) })
	eventually.Holds(t, "those that may be are held", func() bool { return held.Load() == maxLargeBodies+20+1 })
	if code := post("jane", large); code != 429 {
		t.Errorf("one more over HTTP gets %d", code)
	}
	if err := invoke("jane", large); err == nil {
		t.Error("one more over gRPC is taken")
	}
	close(hold)
	sending.Wait()
	eventually.Holds(t, "there is room again", func() bool { return post("jane", large) == 200 && invoke("jane", large) == nil })
}

// A panic in a gRPC stream ends only that stream.
func TestGRPCStreamPanic(t *testing.T) {
	running := start(t, api(), func(options *Options) {
		options.RegisterGRPC = func(server *grpc.Server) {
			server.RegisterService(&grpc.ServiceDesc{ServiceName: "training.MPIJobService", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
				StreamName: "GetMPIJobLogs", ServerStreams: true, Handler: func(any, grpc.ServerStream) error { panic("a mistake") },
			}}}, nil)
		}
	})
	for range 2 {
		stream, err := running.dial(t).NewStream(as(t, "jane"), &grpc.StreamDesc{ServerStreams: true}, "/training.MPIJobService/GetMPIJobLogs")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "a mistake") {
			t.Errorf("the client learns %v", err)
		}
	}
	eventually.Holds(t, "no stream is left", func() bool {
		running.users.mutex.Lock()
		defer running.users.mutex.Unlock()
		return running.users.users["jane"].streams == 0
	})
	if !strings.Contains(running.log.String(), "a mistake") {
		t.Errorf("the log says %s", running.log)
	}
}

// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// patience is how long a test waits for something that happens immediately.
const patience = time.Minute

type messages func(context.Context) iter.Seq2[Message, error]

// finiteMessages are messages that end, with or without an error.
func finiteMessages(err error, texts ...string) messages {
	return func(context.Context) iter.Seq2[Message, error] {
		return func(yield func(Message, error) bool) {
			for i, text := range texts {
				if !yield(Message{ID: fmt.Sprint(i + 1), JSON: []byte(text)}, nil) {
					return
				}
			}
			if err != nil {
				yield(Message{}, err)
			}
		}
	}
}

// quiet sends one message, then waits until the client disconnects, and closes ended.
func quiet(ended chan struct{}) messages {
	return func(ctx context.Context) iter.Seq2[Message, error] {
		return func(yield func(Message, error) bool) {
			defer close(ended)
			if yield(Message{ID: "1", JSON: []byte(`{"type":"FIRST"}`)}, nil) {
				<-ctx.Done()
			}
		}
	}
}

func serve(t *testing.T, options Options, messages messages) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		Serve(writer, request, options, messages)
	}))
	t.Cleanup(server.Close)
	return server
}

func dial(t *testing.T, server *httptest.Server, options *websocket.DialOptions) *websocket.Conn {
	t.Helper()
	connection, _, err := websocket.Dial(t.Context(), server.URL, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.CloseNow() })
	return connection
}

// readAll returns all messages of a connection, and its close code.
func readAll(t *testing.T, connection *websocket.Conn) ([]string, websocket.StatusCode) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var texts []string
	for {
		_, text, err := connection.Read(ctx)
		if err != nil {
			return texts, websocket.CloseStatus(err)
		}
		texts = append(texts, string(text))
	}
}

func within(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s takes more than %s", what, patience)
	}
}

func TestWebSocketCloseCodes(t *testing.T) {
	told := func(failed *apierror.Error) string { return string(errorMessage(failed)) }
	expired := apierror.New(410, "Expired", "Too old", "Start over")
	denied := apierror.New(403, "Forbidden", "No")
	busy := apierror.New(503, "ServiceUnavailable", "Later")
	invalid := apierror.Invalid("resourceVersion", "no")
	for name, test := range map[string]struct {
		err  error
		code websocket.StatusCode
		last []string
	}{
		"all was told":   {nil, websocket.StatusNormalClosure, nil},
		"start over":     {expired, 4410, []string{told(expired)}},
		"not allowed":    {denied, websocket.StatusPolicyViolation, []string{told(denied)}},
		"too busy":       {busy, websocket.StatusTryAgainLater, []string{told(busy)}},
		"a bad request":  {invalid, 4400, []string{told(invalid)}},
		"nobody foresaw": {errors.New("secret"), websocket.StatusInternalError, []string{told(apierror.From(errors.New("secret")))}},
	} {
		t.Run(name, func(t *testing.T) {
			texts, code := readAll(t, dial(t, serve(t, Options{}, finiteMessages(test.err, `{"n":1}`, `{"n":2}`)), nil))
			if difference := cmp.Diff(append([]string{`{"n":1}`, `{"n":2}`}, test.last...), texts); difference != "" || code != test.code {
				t.Errorf("closed with %d, want %d:\n%s", code, test.code, difference)
			}
		})
	}
}

func TestErrorMessage(t *testing.T) {
	var read struct {
		Type        string
		Code        int
		Reason      string
		Suggestions []string
	}
	if err := json.Unmarshal(errorMessage(apierror.New(410, "Expired", "Too old", "Start over")), &read); err != nil {
		t.Fatal(err)
	}
	if read.Type != "ERROR" || read.Code != 410 || read.Reason != "Expired" || len(read.Suggestions) != 1 {
		t.Errorf("%+v", read)
	}
}

func TestHeartbeats(t *testing.T) {
	ended := make(chan struct{})
	connection := dial(t, serve(t, Options{Heartbeat: 10 * time.Millisecond}, quiet(ended)), nil)
	// A heartbeat may arrive before the only message.
	for beats, first := 0, 0; beats < 3 || first < 1; {
		_, text, err := connection.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Type      string
			Timestamp time.Time
		}
		err = json.Unmarshal(text, &read)
		switch {
		case err == nil && read.Type == "FIRST":
			first++
		case err == nil && read.Type == "HEARTBEAT" && !read.Timestamp.IsZero():
			beats++
		default:
			t.Fatalf("a message is %s: %v", text, err)
		}
	}
}

// The cause of the request's context is sent to the client, such as a revoked token.
func TestStreamEndHasCause(t *testing.T) {
	for name, test := range map[string]struct {
		cause error
		code  websocket.StatusCode
	}{
		"revoked":         {apierror.New(401, "Unauthorized", "The token is not valid"), websocket.StatusPolicyViolation},
		"no longer lists": {apierror.New(403, "Forbidden", "No"), websocket.StatusPolicyViolation},
		"nobody can tell": {apierror.New(503, "ServiceUnavailable", "Later"), websocket.StatusTryAgainLater},
		"the server ends": {context.Canceled, websocket.StatusGoingAway},
	} {
		t.Run(name, func(t *testing.T) {
			ended, began := make(chan struct{}), make(chan context.CancelCauseFunc, 1)
			server := httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
				ctx, cancel := context.WithCancelCause(request.Context())
				began <- cancel
				Serve(writer, request.WithContext(ctx), Options{}, quiet(ended))
			}))
			t.Cleanup(server.Close)
			connection := dial(t, server, nil)
			(<-began)(test.cause)
			if _, code := readAll(t, connection); code != test.code {
				t.Errorf("closed with %d, want %d", code, test.code)
			}
			within(t, ended, "the end of the messages")
		})
	}
}

func TestMessagesThatPanic(t *testing.T) {
	connection := dial(t, serve(t, Options{}, func(context.Context) iter.Seq2[Message, error] {
		return func(func(Message, error) bool) { panic(http.ErrAbortHandler) }
	}), nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, text, err := connection.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the connection still stands: %s %v", text, err)
	}
}

func TestServerShutdown(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		Serve(writer, request, Options{}, quiet(ended))
	}))
	base, stop := context.WithCancel(t.Context())
	server.Config.BaseContext = func(net.Listener) context.Context { return base }
	server.Start()
	t.Cleanup(server.Close)
	connection := dial(t, server, nil)
	if _, _, err := connection.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, code := readAll(t, connection); code != websocket.StatusGoingAway {
		t.Errorf("closed with %d", code)
	}
	within(t, ended, "the end of the messages")
}

// clientFrame is a client's frame, masked with zeros.
func clientFrame(first byte, payload []byte) []byte {
	frame := []byte{first, 0x80 | 126, byte(len(payload) >> 8), byte(len(payload)), 0, 0, 0, 0}
	return append(frame, payload...)
}

func TestClientMessagesCloseStream(t *testing.T) {
	for name, sent := range map[string][]byte{
		"text":                  clientFrame(0x81, []byte("hello")),
		"binary":                clientFrame(0x82, []byte{0, 1, 2}),
		"more than fits":        clientFrame(0x81, make([]byte, 60000)),
		"an unknown frame":      clientFrame(0x8f, nil),
		"reserved bits":         clientFrame(0xf1, nil),
		"a frame without mask":  {0x81, 0x01, 'x'},
		"an endless ping":       clientFrame(0x89, make([]byte, 5000)),
		"no WebSocket at all":   []byte("GET / HTTP/1.1\r\n\r\n"),
		"the end of the stream": nil,
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			connection := handshakeByHand(t, serve(t, Options{}, quiet(ended)))
			if _, err := connection.Write(sent); err != nil {
				t.Fatal(err)
			}
			if sent == nil {
				_ = connection.Close()
			}
			within(t, ended, "the end of the messages")
		})
	}
}

func handshakeByHand(t *testing.T, server *httptest.Server) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	fmt.Fprintf(connection, "GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", response, err)
	}
	return connection
}

// endless always has another message.
func endless(ended chan struct{}) messages {
	text := []byte(`{"text":"` + strings.Repeat("x", 64<<10) + `"}`)
	return func(context.Context) iter.Seq2[Message, error] {
		return func(yield func(Message, error) bool) {
			defer close(ended)
			for yield(Message{JSON: text}, nil) {
			}
		}
	}
}

func TestSlowClientsAreDisconnected(t *testing.T) {
	options := Options{WriteTimeout: 100 * time.Millisecond}
	t.Run("WebSocket", func(t *testing.T) {
		ended := make(chan struct{})
		handshakeByHand(t, serve(t, options, endless(ended)))
		within(t, ended, "the end of the messages")
	})
	t.Run("SSE", func(t *testing.T) {
		ended := make(chan struct{})
		connection, err := net.Dial("tcp", serve(t, options, endless(ended)).Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		fmt.Fprint(connection, "GET / HTTP/1.1\r\nHost: here\r\nAccept: text/event-stream\r\n\r\n")
		within(t, ended, "the end of the messages")
	})
	t.Run("SSE over HTTP/2", func(t *testing.T) {
		ended := make(chan struct{})
		getEvents(t, serveHTTP2(t, options, endless(ended)))
		within(t, ended, "the end of the messages")
	})
}

func TestEvents(t *testing.T) {
	expired := apierror.New(410, "Expired", "Too old")
	denied := apierror.New(401, "Unauthorized", "No")
	for name, test := range map[string]struct {
		messages messages
		want     string
	}{
		"all was told": {finiteMessages(nil, `{"n":1}`, "{\n\"n\":2}"), "id: 1\ndata: {\"n\":1}\n\nid: 2\ndata: {\ndata: \"n\":2}\n\n"},
		// The id is cleared: a browser that reconnects starts over.
		"start over":  {finiteMessages(expired, `{"n":1}`), "id: 1\ndata: {\"n\":1}\n\nid: \ndata: " + string(errorMessage(expired)) + "\n\n"},
		"not allowed": {finiteMessages(denied), "data: " + string(errorMessage(denied)) + "\n\n"},
	} {
		t.Run(name, func(t *testing.T) {
			response := getEvents(t, serve(t, Options{}, test.messages))
			text, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(":\n\n"+test.want, string(text)); difference != "" || response.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("%v\n%s", response.Header, difference)
			}
		})
	}
}

func getEvents(t *testing.T, server *httptest.Server) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "text/event-stream, */*;q=0.1")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func TestEventClientDisconnects(t *testing.T) {
	for name, serve := range map[string]func(*testing.T, Options, messages) *httptest.Server{"HTTP/1.1": serve, "HTTP/2.0": serveHTTP2} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			response := getEvents(t, serve(t, Options{}, quiet(ended)))
			if _, err := response.Body.Read(make([]byte, 1)); err != nil || response.Proto != name {
				t.Fatalf("%s: %v", response.Proto, err)
			}
			_ = response.Body.Close()
			within(t, ended, "the end of the messages")
		})
	}
}

func serveHTTP2(t *testing.T, options Options, messages messages) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		Serve(writer, request, options, messages)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// told is a message of a stream.
type told struct {
	Type            string
	Kind, Name      string
	ResourceVersion string
	Job             struct{ Status string }
	Changes         map[string]any
	Log             struct{ PodName, PodType, Message string }
	Code            int
}

// listen opens a WebSocket as a browser does: with the token in its protocols.
func (server *theServer) listen(t *testing.T, by user, path string, header http.Header) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	dialer := websocket.Dialer{
		TLSClientConfig: trusting(t, server.authority), HandshakeTimeout: time.Minute,
		Subprotocols: []string{"trireme.v1", "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(by.token))},
	}
	connection, response, err := dialer.DialContext(t.Context(), "wss://"+server.address+path, header)
	if err == nil {
		t.Cleanup(func() { connection.Close() })
	}
	return connection, response, err
}

// until reads messages until one is the wanted one, and returns all.
func readUntil(t *testing.T, connection *websocket.Conn, within time.Duration, wanted func(told) bool) (seen []told) {
	t.Helper()
	if err := connection.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	for {
		var message told
		if err := connection.ReadJSON(&message); err != nil {
			t.Fatalf("%v, after %+v", err, seen)
		}
		seen = append(seen, message)
		if wanted(message) {
			return seen
		}
	}
}

func isSynced(message told) bool { return message.Type == "SYNCED" }

// A watch and a log over a WebSocket and as server-sent events, and what is refused.
func TestServerLive(t *testing.T) {
	t.Parallel()
	server, ada, bob := reachServer(t), newUser(t), newUser(t)
	watch := fmt.Sprintf("/api/v1/watch/namespaces/%s/mpijobs", ada.namespace)
	jobs := fmt.Sprintf("/api/v1/namespaces/%s/mpijobs", ada.namespace)

	if _, response, err := server.listen(t, bob, watch, nil); err == nil || response == nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("bob hears of ada's jobs: %v, %v", response, err)
	}
	if _, response, err := server.listen(t, ada, watch, http.Header{"Origin": {"https://elsewhere.example"}}); err == nil || response == nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("a page of another server hears of jobs: %v, %v", response, err)
	}
	connection, _, err := server.listen(t, ada, watch, nil)
	if err != nil {
		t.Fatal(err)
	}
	if connection.Subprotocol() != "trireme.v1" {
		t.Errorf("the protocol is %q", connection.Subprotocol())
	}
	synced := readUntil(t, connection, time.Minute, isSynced)
	server.wants(t, ada, "POST", jobs, manifest(t, "MPIJob", "watched", waiting), 201)
	running := readUntil(t, connection, 2*time.Minute, func(message told) bool { return message.Changes["status"] == "Running" })
	if running[0].Type != "ADDED" || running[0].Name != "watched" {
		t.Errorf("the first message is %+v", running[0])
	}
	t.Run("the same again from a version", func(t *testing.T) {
		again, _, err := server.listen(t, ada, watch+"?resourceVersion="+synced[len(synced)-1].ResourceVersion, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, readUntil(t, again, time.Minute, func(message told) bool { return message.ResourceVersion == running[len(running)-1].ResourceVersion }), running)
	})
	t.Run("a version that is none", func(t *testing.T) {
		_, response, err := server.listen(t, ada, watch+"?resourceVersion=yesterday", nil)
		if err == nil || response == nil || response.StatusCode != http.StatusBadRequest {
			t.Errorf("%v, %v", response, err)
		}
	})
	t.Run("what the job prints", func(t *testing.T) {
		logs, _, err := server.listen(t, ada, jobs+"/watched/logs?follow=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		readUntil(t, logs, time.Minute, func(message told) bool {
			return message.Type == "LOG" && message.Log.PodType == "launcher" && strings.Contains(message.Log.Message, "all ranks are up")
		})
		if _, response, err := server.listen(t, bob, jobs+"/watched/logs?follow=true", nil); err == nil || response.StatusCode != http.StatusForbidden {
			t.Errorf("bob reads what ada's job prints: %v", err)
		}
	})
	t.Run("as server-sent events, by curl", func(t *testing.T) {
		lines := server.follow(t, ada, watch)
		wantLine(t, lines, `"ADDED"`, `"watched"`)
		wantLine(t, lines, `"SYNCED"`)
		wantLine(t, server.follow(t, ada, jobs+"/watched/logs?follow=true"), "all ranks are up")
	})
	t.Run("garbage from a client", func(t *testing.T) {
		rude, _, err := server.listen(t, ada, watch, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := rude.WriteMessage(websocket.BinaryMessage, make([]byte, 1<<20)); err != nil {
			t.Log(err)
		}
		_ = rude.SetReadDeadline(time.Now().Add(time.Minute))
		for err == nil {
			_, _, err = rude.ReadMessage()
		}
		if closed, is := errors.AsType[*websocket.CloseError](err); !is || closed.Code != websocket.ClosePolicyViolation && closed.Code != websocket.CloseMessageTooBig {
			t.Errorf("it ends with %v", err)
		}
	})
	server.wants(t, ada, "DELETE", jobs+"/watched", nil, 204)
	readUntil(t, connection, time.Minute, func(message told) bool { return message.Type == "DELETED" })
	kubectl(t, "delete serviceaccount scientist --namespace "+ada.namespace)
	revoked := time.Now()
	_ = connection.SetReadDeadline(time.Now().Add(3 * time.Minute))
	for err == nil {
		_, _, err = connection.ReadMessage()
	}
	if closed, is := errors.AsType[*websocket.CloseError](err); !is || closed.Code != websocket.ClosePolicyViolation {
		t.Errorf("a stream whose token was revoked ends with %v", err)
	}
	t.Logf("a revoked token ended its stream after %s", time.Since(revoked).Round(time.Second))
}

func wantSame(t *testing.T, found, want []told) {
	t.Helper()
	text := func(messages []told) string {
		encoded, err := json.Marshal(messages)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	if text(found) != text(want) {
		t.Errorf("it tells\n%s\nand not\n%s", text(found), text(want))
	}
}

// follow reads a stream with curl, line by line.
func (server *theServer) follow(t *testing.T, by user, path string) *bufio.Scanner {
	t.Helper()
	command := exec.Command("curl", "--silent", "--show-error", "--cacert", server.authority, "--no-buffer", "--max-time", "90",
		"--header", "Authorization: Bearer "+by.token, "--header", "Accept: text/event-stream", "https://"+server.address+path)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _, _ = io.Copy(io.Discard, output); _ = command.Wait() })
	return bufio.NewScanner(output)
}

// wantLine reads until a line has all of these words.
func wantLine(t *testing.T, lines *bufio.Scanner, words ...string) {
	t.Helper()
	var seen []string
next:
	for lines.Scan() {
		seen = append(seen, lines.Text())
		for _, word := range words {
			if !strings.Contains(lines.Text(), word) {
				continue next
			}
		}
		return
	}
	t.Errorf("no line has %q:\n%s", words, strings.Join(seen, "\n"))
}

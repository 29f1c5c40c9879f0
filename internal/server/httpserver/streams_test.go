// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client that does not read its stream is disconnected, over HTTP/1.1 and HTTP/2.
func TestStreamNotRead(t *testing.T) {
	for name, protocols := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(protocols *http.Protocols) { protocols.SetHTTP1(true) }, "HTTP/2": func(protocols *http.Protocols) { protocols.SetUnencryptedHTTP2(true) },
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			mux := http.NewServeMux()
			mux.HandleFunc("GET /api/v1/namespaces/n/mpijobs/hello/logs", func(writer http.ResponseWriter, _ *http.Request) {
				// A client that reads is not disconnected between two lines.
				var err error
				for i := 0; err == nil; i++ {
					if _, err = writer.Write([]byte(strings.Repeat("x", 1<<20))); err == nil {
						err = http.NewResponseController(writer).Flush()
					}
					if i < 2 {
						time.Sleep(1200 * time.Millisecond)
					}
				}
				ended <- err
			})
			running := start(t, mux, nil)
			running.writeTimeout = time.Second
			transport := &http.Transport{Protocols: &http.Protocols{}}
			protocols(transport.Protocols)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+running.address+"/api/v1/namespaces/n/mpijobs/hello/logs?follow=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer jane")
			response, err := (&http.Client{Transport: transport}).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if _, err := io.ReadFull(response.Body, make([]byte, 2<<20)); err != nil {
				t.Fatalf("a client that reads was cut off: %v", err)
			}
			select {
			case err := <-ended:
				if err == nil {
					t.Error("it ended by itself")
				}
			case <-time.After(time.Minute):
				t.Error("the server still waits")
			}
		})
	}
}

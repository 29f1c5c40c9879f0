// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// events sends server-sent events.
type events struct {
	writer     http.ResponseWriter
	controller *http.ResponseController
	options    Options

	lock sync.Mutex
	// failed is set after an incomplete event: nothing else can follow.
	failed error
}

// startEvents sends the response header.
func startEvents(writer http.ResponseWriter, options Options) (sink, *apierror.Error) {
	e := &events{writer: writer, controller: http.NewResponseController(writer), options: options}
	// The read deadline of the request must not end the response.
	_ = e.controller.SetReadDeadline(time.Time{})
	header := writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	// Proxies must not buffer the response.
	header.Set("X-Accel-Buffering", "no")
	writer.WriteHeader(http.StatusOK)
	// The client must see immediately that it is connected. If it has disconnected, the
	// first message fails.
	_ = e.write([]byte(":\n\n"))
	return e, nil
}

func (e *events) send(message Message) error {
	// An empty id clears the previous one.
	id := strings.NewReplacer("\n", "", "\r", "", "\x00", "").Replace(message.ID)
	return e.write(event("id: "+id+"\n", message.JSON))
}

func (e *events) aside(text json.RawMessage) error { return e.write(event("", text)) }

func (e *events) end(err error) {
	code, failed := closeCode(err)
	switch {
	case failed == nil || failed == errClientClosed:
	case code == startOver:
		_ = e.send(Message{JSON: errorMessage(failed)})
	default:
		_ = e.aside(errorMessage(failed))
	}
	// The response writer is invalid after this.
	e.lock.Lock()
	defer e.lock.Unlock()
	e.failed = errClientClosed
}

func event(id string, text json.RawMessage) []byte {
	text = bytes.ReplaceAll(text, []byte("\n"), []byte("\ndata: "))
	return append(append([]byte(id+"data: "), text...), "\n\n"...)
}

func (e *events) write(text []byte) error {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.failed == nil && e.writeNow(text) != nil {
		e.failed = errClientClosed
	}
	return e.failed
}

func (e *events) writeNow(text []byte) error {
	if err := e.controller.SetWriteDeadline(time.Now().Add(e.options.WriteTimeout)); err != nil {
		return err
	}
	if _, err := e.writer.Write(text); err != nil {
		return err
	}
	if err := e.controller.Flush(); err != nil {
		return err
	}
	// HTTP/2 ends a response when its deadline passes, even if nothing is being written.
	return e.controller.SetWriteDeadline(time.Time{})
}

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

// events are server-sent ones.
type events struct {
	writer     http.ResponseWriter
	controller *http.ResponseController
	options    Options

	lock sync.Mutex
	// failed: after half an event nothing else can follow.
	failed error
}

// beginEvents answers that events will come.
func beginEvents(writer http.ResponseWriter, options Options) (sink, *apierror.Error) {
	made := &events{writer: writer, controller: http.NewResponseController(writer), options: options}
	// The time that a request may take to be read is not meant for the time that it
	// is answered.
	_ = made.controller.SetReadDeadline(time.Time{})
	header := writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	// Proxies must not wait for more.
	header.Set("X-Accel-Buffering", "no")
	writer.WriteHeader(http.StatusOK)
	// The client is to see at once that it is connected. If it is gone already, the
	// first message finds out.
	_ = made.write([]byte(":\n\n"))
	return made, nil
}

func (events *events) send(message Message) error {
	// An id that is empty takes away the one before.
	id := strings.NewReplacer("\n", "", "\r", "", "\x00", "").Replace(message.ID)
	return events.write(event("id: "+id+"\n", message.JSON))
}

func (events *events) aside(text json.RawMessage) error { return events.write(event("", text)) }

func (events *events) end(err error) {
	code, failed := closeCode(err)
	switch {
	case failed == nil || failed == errGone:
	case code == startOver:
		_ = events.send(Message{JSON: errorMessage(failed)})
	default:
		_ = events.aside(errorMessage(failed))
	}
	// The response is not ours any more.
	events.lock.Lock()
	defer events.lock.Unlock()
	events.failed = errGone
}

func event(id string, text json.RawMessage) []byte {
	text = bytes.ReplaceAll(text, []byte("\n"), []byte("\ndata: "))
	return append(append([]byte(id+"data: "), text...), "\n\n"...)
}

func (events *events) write(text []byte) error {
	events.lock.Lock()
	defer events.lock.Unlock()
	if events.failed == nil && events.writeNow(text) != nil {
		events.failed = errGone
	}
	return events.failed
}

func (events *events) writeNow(text []byte) error {
	if err := events.controller.SetWriteDeadline(time.Now().Add(events.options.WriteTimeout)); err != nil {
		return err
	}
	if _, err := events.writer.Write(text); err != nil {
		return err
	}
	if err := events.controller.Flush(); err != nil {
		return err
	}
	// HTTP/2 ends a response whose deadline passes also while nothing is written.
	return events.controller.SetWriteDeadline(time.Time{})
}

package httpserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// recorder knows which code was answered. Errors that libraries write as plain text
// get the shape that all errors have.
type recorder struct {
	http.ResponseWriter
	code int
	// writeTimeout is what a client has to accept a part of a stream; 0 for what is none.
	writeTimeout time.Duration
	// plain is the text of a library's error, which is held back.
	plain *bytes.Buffer
}

// Unwrap lets http.ResponseController reach what is below.
func (recorder *recorder) Unwrap() http.ResponseWriter { return recorder.ResponseWriter }

// Flush sends what was written so far.
func (recorder *recorder) Flush() { _ = recorder.FlushError() }

// FlushError does so, and says whether it could.
func (recorder *recorder) FlushError() error {
	defer recorder.inTime()()
	return http.NewResponseController(recorder.ResponseWriter).Flush()
}

// inTime cuts a client off that does not read, until the returned function is called.
func (recorder *recorder) inTime() func() {
	if recorder.writeTimeout == 0 {
		return func() {}
	}
	control := http.NewResponseController(recorder.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(recorder.writeTimeout))
	return func() { _ = control.SetWriteDeadline(time.Time{}) }
}

// WriteHeader notes the code.
func (recorder *recorder) WriteHeader(code int) {
	if recorder.code != 0 {
		return
	}
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		recorder.code = code
	}
	if code >= http.StatusBadRequest && strings.HasPrefix(recorder.Header().Get("Content-Type"), "text/plain") {
		recorder.plain = &bytes.Buffer{}
		return
	}
	recorder.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the answer.
func (recorder *recorder) Write(content []byte) (int, error) {
	if recorder.code == 0 {
		recorder.WriteHeader(http.StatusOK)
	}
	if recorder.plain != nil {
		return recorder.plain.Write(content)
	}
	defer recorder.inTime()()
	return recorder.ResponseWriter.Write(content)
}

// finish sends what was held back.
func (recorder *recorder) finish() {
	if recorder.plain == nil {
		return
	}
	message := strings.TrimSpace(recorder.plain.String())
	if message == "" {
		message = http.StatusText(recorder.code)
	}
	send(recorder.ResponseWriter, apierror.New(recorder.code, strings.ReplaceAll(http.StatusText(recorder.code), " ", ""), message, "See what there is: GET /openapi.json"))
}

// send answers with an error.
func send(writer http.ResponseWriter, told *apierror.Error) {
	body, err := json.Marshal(told)
	if err != nil {
		panic(err) // texts and numbers
	}
	header := writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	if told.Code == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="trireme"`)
	}
	writer.WriteHeader(told.Code)
	// A client that has gone away is no error of anybody's.
	_, _ = writer.Write(append(body, '\n'))
}

package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/trireme-mpi/trireme/internal/problem"
)

// recorder knows which code was answered. Errors that libraries write as plain text
// get the shape that all errors have.
type recorder struct {
	http.ResponseWriter
	code int
	// plain is the text of a library's error, which is held back.
	plain *bytes.Buffer
}

// Unwrap lets http.ResponseController reach what is below.
func (recorder *recorder) Unwrap() http.ResponseWriter { return recorder.ResponseWriter }

// Flush sends what was written so far.
func (recorder *recorder) Flush() { _ = http.NewResponseController(recorder.ResponseWriter).Flush() }

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
	send(recorder.ResponseWriter, problem.New(recorder.code, strings.ReplaceAll(http.StatusText(recorder.code), " ", ""), message, "See what there is: GET /openapi.json"))
}

// send answers with an error.
func send(writer http.ResponseWriter, told *problem.Error) {
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

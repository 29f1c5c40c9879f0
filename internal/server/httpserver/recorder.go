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
	errorText *bytes.Buffer
}

// Unwrap lets http.ResponseController reach what is below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush sends what was written so far.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError does so, and says whether it could.
func (r *recorder) FlushError() error {
	defer r.limitWrite()()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// inTime cuts a client off that does not read, until the returned function is called.
func (r *recorder) limitWrite() func() {
	if r.writeTimeout == 0 {
		return func() {}
	}
	control := http.NewResponseController(r.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(r.writeTimeout))
	return func() { _ = control.SetWriteDeadline(time.Time{}) }
}

// WriteHeader notes the code.
func (r *recorder) WriteHeader(code int) {
	if r.code != 0 {
		return
	}
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		r.code = code
	}
	if code >= http.StatusBadRequest && strings.HasPrefix(r.Header().Get("Content-Type"), "text/plain") {
		r.errorText = &bytes.Buffer{}
		return
	}
	r.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the answer.
func (r *recorder) Write(content []byte) (int, error) {
	if r.code == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.errorText != nil {
		return r.errorText.Write(content)
	}
	defer r.limitWrite()()
	return r.ResponseWriter.Write(content)
}

// finish sends what was held back.
func (r *recorder) finish() {
	if r.errorText == nil {
		return
	}
	message := strings.TrimSpace(r.errorText.String())
	if message == "" {
		message = http.StatusText(r.code)
	}
	writeAPIError(r.ResponseWriter, apierror.New(r.code, strings.ReplaceAll(http.StatusText(r.code), " ", ""), message, "See the API document: GET /openapi.json"))
}

// send answers with an error.
func writeAPIError(writer http.ResponseWriter, apiErr *apierror.Error) {
	body, err := json.Marshal(apiErr)
	if err != nil {
		panic(err) // texts and numbers
	}
	header := writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	if apiErr.Code == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="trireme"`)
	}
	writer.WriteHeader(apiErr.Code)
	// A client that has gone away is no error of anybody's.
	_, _ = writer.Write(append(body, '\n'))
}

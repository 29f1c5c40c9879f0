// SPDX-License-Identifier: Apache-2.0

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

// recorder records the status code of a response. It converts plain-text errors of
// libraries to API errors.
type recorder struct {
	http.ResponseWriter
	code int
	// writeTimeout is how long a client may take to accept a part of a stream; 0 if the
	// response is not a stream.
	writeTimeout time.Duration
	// errorText is the plain-text error of a library, held back until finish.
	errorText *bytes.Buffer
}

// Unwrap lets http.ResponseController reach the wrapped writer.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush sends what has been written.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError sends what has been written, and returns an error if that fails.
func (r *recorder) FlushError() error {
	defer r.limitWrite()()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// limitWrite sets the write deadline, until the returned function is called: a client that
// does not read is disconnected.
func (r *recorder) limitWrite() func() {
	if r.writeTimeout == 0 {
		return func() {}
	}
	control := http.NewResponseController(r.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(r.writeTimeout))
	return func() { _ = control.SetWriteDeadline(time.Time{}) }
}

// WriteHeader records the code.
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

// Write sends a part of the response.
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

// finish sends an error that was held back.
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

// writeAPIError responds with an error.
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
	// A client that has disconnected is not an error.
	_, _ = writer.Write(append(body, '\n'))
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// reply responds with a value as JSON; nil responds without a body.
func (a *API) reply(writer http.ResponseWriter, request *http.Request, code int, value any) {
	if value == nil {
		writer.WriteHeader(code)
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		a.fail(writer, request, err)
		return
	}
	send(writer, code, body)
}

// sendTimeout is how long a client may take to read a response that is completely in
// memory.
const sendTimeout = time.Minute

func send(writer http.ResponseWriter, code int, body []byte) {
	_ = http.NewResponseController(writer).SetWriteDeadline(time.Now().Add(sendTimeout))
	header := writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	writer.WriteHeader(code)
	// A client that has disconnected is not an error. The body may be shared.
	_, _ = writer.Write(body)
	_, _ = io.WriteString(writer, "\n")
}

// fail responds with an error. Errors that the client did not cause are logged, because
// the response may have fewer details.
func (a *API) fail(writer http.ResponseWriter, request *http.Request, err error) {
	apiErr := apierror.From(err)
	if apiErr.Code >= http.StatusInternalServerError {
		a.Log.ErrorContext(request.Context(), "request failed", "error", err.Error(), "code", apiErr.Code, "path", request.URL.Path, "requestID", writer.Header().Get("X-Request-Id"))
	}
	if apiErr.Code == http.StatusTooManyRequests {
		writer.Header().Set("Retry-After", "1")
	}
	if apiErr.Code == http.StatusUnauthorized {
		writer.Header().Set("WWW-Authenticate", `Bearer realm="trireme"`)
	}
	body, err := json.Marshal(apiErr)
	if err != nil {
		panic(err) // texts and numbers
	}
	send(writer, apiErr.Code, body)
}

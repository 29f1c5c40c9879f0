package rest

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// reply answers with a value as JSON; nil is an answer without a body.
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

// sendTimeout is what a client has to read an answer that is in memory as a whole.
const sendTimeout = time.Minute

func send(writer http.ResponseWriter, code int, body []byte) {
	_ = http.NewResponseController(writer).SetWriteDeadline(time.Now().Add(sendTimeout))
	header := writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	writer.WriteHeader(code)
	// A client that has gone away is no error of anybody's. The body may be shared.
	_, _ = writer.Write(body)
	_, _ = io.WriteString(writer, "\n")
}

// fail answers with an error in the one shape that errors have. What is no fault of
// the client's is logged: what it is told may be less.
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

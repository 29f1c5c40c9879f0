package rest

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/trireme-mpi/trireme/internal/problem"
)

// reply answers with a value as JSON; nil is an answer without a body.
func reply(writer http.ResponseWriter, code int, value any) {
	if value == nil {
		writer.WriteHeader(code)
		return
	}
	body, err := json.Marshal(value)
	if err != nil {
		fail(writer, err)
		return
	}
	send(writer, code, body)
}

func send(writer http.ResponseWriter, code int, body []byte) {
	header := writer.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)+1))
	writer.WriteHeader(code)
	// A client that has gone away is no error of anybody's.
	_, _ = writer.Write(append(body, '\n'))
}

// fail answers with an error in the one shape that errors have.
func fail(writer http.ResponseWriter, err error) {
	told := problem.From(err)
	body, err := json.Marshal(told)
	if err != nil {
		panic(err) // texts and numbers
	}
	send(writer, told.Code, body)
}

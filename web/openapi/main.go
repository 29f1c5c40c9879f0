// SPDX-License-Identifier: Apache-2.0

// Command openapi prints the OpenAPI document of the server, from which the types of the
// dashboard are generated.
package main

import (
	"fmt"
	"net/http/httptest"
	"os"

	"github.com/trireme-mpi/trireme/internal/server/rest"
)

func main() {
	api, err := rest.New(nil, rest.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	response := httptest.NewRecorder()
	api.Document().ServeHTTP(response, httptest.NewRequest("GET", "/openapi.json", nil))
	_, _ = response.Body.WriteTo(os.Stdout)
}

// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// OnlyAPIServer refuses callers without a verified client certificate with one of the
// names; without names, any name is accepted. Otherwise a pod that reaches the port could
// write audit lines in the name of others.
func OnlyAPIServer(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.TLS == nil || len(request.TLS.VerifiedChains) == 0 {
			http.Error(writer, "a client certificate of the API server is required; its CA is set in webhook.clientCAFile of the operator", http.StatusUnauthorized)
			return
		}
		name := request.TLS.VerifiedChains[0][0].Subject.CommonName
		if len(names) > 0 && !slices.Contains(names, name) {
			http.Error(writer, fmt.Sprintf("client certificate of %q: only %s may call; see webhook.clientNames of the operator", name, strings.Join(names, ", ")), http.StatusForbidden)
			return
		}
		next.ServeHTTP(writer, request)
	})
}

// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"io"
	"log/slog"
	"strings"

	"github.com/trireme-mpi/trireme/internal/kube/auditlog"
)

// Audit writes one line of JSON for each call that changes something, also if it fails.
// The line has the user, the source, the operation and the object's name, but none of the
// object's content.
type Audit struct{ logger *slog.Logger }

// NewAudit writes to a stream that should have nothing else.
func NewAudit(to io.Writer) *Audit { return &Audit{logger: auditlog.New(to)} }

// Outcome is the result of a call.
type Outcome struct {
	Record
	// Caller is nil if authentication failed.
	Caller *Caller
	// Source is the address of the client.
	Source string
	// Code is the HTTP status code, also for gRPC calls.
	Code      int
	RequestID string
}

// Write writes the line of a call, unless the call changes nothing.
func (a *Audit) Write(outcome Outcome) {
	if outcome.Verb == "" {
		return
	}
	caller := outcome.Caller
	if caller == nil {
		caller = &Caller{}
	}
	a.logger.Info("audit",
		"user", caller.User,
		"groups", caller.Groups,
		"verb", outcome.Verb,
		"kind", truncate(outcome.Kind),
		"namespace", truncate(outcome.Namespace),
		"name", truncate(outcome.Name),
		"code", outcome.Code,
		"result", result(outcome.Code),
		"source", outcome.Source,
		"requestID", outcome.RequestID,
	)
}

// maxName is the maximum length of a Kubernetes name. Longer texts are not valid names,
// and may have any length.
const maxName = 253

func truncate(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "") + "…"
}

// Results in audit lines.
const (
	resultDone    = "done"
	resultRefused = "refused"
	resultFailed  = "failed"
)

func result(code int) string {
	switch {
	case code < 400:
		return resultDone
	case code < 500:
		return resultRefused
	default:
		return resultFailed
	}
}

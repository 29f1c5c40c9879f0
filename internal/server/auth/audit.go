package auth

import (
	"io"
	"log/slog"
	"strings"

	"github.com/trireme-mpi/trireme/internal/kube/auditlog"
)

// Audit writes one line of JSON for each call that was to change something, whether
// or not it did. It holds who, from where and what, and nothing of an object's
// content.
type Audit struct{ logger *slog.Logger }

// NewAudit writes to a stream that should have nothing else in it.
func NewAudit(to io.Writer) *Audit { return &Audit{logger: auditlog.New(to)} }

// Outcome is how a call ended.
type Outcome struct {
	Record
	// Caller is nil where nobody was let in.
	Caller *Caller
	// Source is the address that the call came from.
	Source string
	// Code is HTTP's, also of calls over gRPC.
	Code      int
	RequestID string
}

// Write writes the line of a call; nothing, if the call was to change nothing.
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

// mostName is the length of the longest name that anything can have. What is longer
// is no name, and may be as long as a client likes.
const maxName = 253

func truncate(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "") + "…"
}

// The results that an audit line tells.
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

// Package auditlog is how the operator and the server write what somebody did: one
// line of JSON each, in a stream that should have nothing else in it.
package auditlog

import (
	"io"
	"log/slog"
)

// New writes lines that have a time and no level: none of them matters less.
func New(to io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, attribute slog.Attr) slog.Attr {
			if attribute.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return attribute
		},
	}))
}

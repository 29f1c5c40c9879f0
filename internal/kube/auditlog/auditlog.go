// SPDX-License-Identifier: Apache-2.0

// Package auditlog writes the audit log of the operator and the server: one line of JSON
// for each action, in a stream of its own.
package auditlog

import (
	"io"
	"log/slog"
)

// New returns a logger whose lines have a time and no level.
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

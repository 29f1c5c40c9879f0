// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// cursor is the end of a page: the last job, by the sort order of the list. Jobs that are
// created or deleted between two pages do not move others: no job is repeated or skipped,
// unless its sort key changes.
type cursor struct {
	// Sort is the sort order of the list.
	Sort      string `json:"sort"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Time      int64  `json:"time,omitempty"`
	Text      string `json:"text,omitempty"`
}

func newCursor(order order, last *sortedEntry) cursor {
	row := last.entry.Row
	return cursor{Sort: order.String(), Namespace: row.Namespace, Name: row.Name, Time: last.time, Text: last.text}
}

// String returns the token for clients, which is opaque.
func (c cursor) String() string {
	return base64.RawURLEncoding.EncodeToString(encode(c))
}

// maxCursor is longer than the longest names need.
const maxCursor = 2048

// parseCursor parses a token for a list with the same sort order.
func parseCursor(text string, order order) (*cursor, error) {
	if len(text) > maxCursor {
		return nil, apierror.Invalid("continue", "is too long for a token that a list returned")
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, apierror.Invalid("continue", "is not a token that a list returned")
	}
	var read cursor
	decoder := json.NewDecoder(bytes.NewReader(decoded))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&read); err != nil {
		return nil, apierror.Invalid("continue", "is not a token that a list returned")
	}
	if _, err := decoder.Token(); err != io.EOF || read.Namespace == "" || read.Name == "" {
		return nil, apierror.Invalid("continue", "is not a token that a list returned")
	}
	if read.Sort != order.String() {
		return nil, apierror.Invalid("continue", "is from a list with another sort order, %q", read.Sort)
	}
	return &read, nil
}

// SPDX-License-Identifier: Apache-2.0

package deployed

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// Lines keeps what a process writes.
type Lines struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (lines *Lines) Write(line []byte) (int, error) {
	lines.mutex.Lock()
	defer lines.mutex.Unlock()
	return lines.text.Write(line)
}

func (lines *Lines) String() string {
	lines.mutex.Lock()
	defer lines.mutex.Unlock()
	return lines.text.String()
}

// About are the lines of an audit about an object.
func (lines *Lines) About(t testing.TB, name string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(lines.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("the audit line %q is not JSON: %v", line, err)
		}
		if entry["name"] == name {
			found = append(found, entry)
		}
	}
	return found
}

package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// warnings keeps what the API server warned of.
type warnings struct {
	mutex sync.Mutex
	texts []string
}

func (warnings *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	warnings.mutex.Lock()
	defer warnings.mutex.Unlock()
	warnings.texts = append(warnings.texts, text)
}

// take is what has been warned of since it was last asked.
func (warnings *warnings) take() []string {
	warnings.mutex.Lock()
	defer warnings.mutex.Unlock()
	texts := warnings.texts
	warnings.texts = nil
	return texts
}

// lines keeps the audit.
type lines struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (lines *lines) Write(line []byte) (int, error) {
	lines.mutex.Lock()
	defer lines.mutex.Unlock()
	return lines.text.Write(line)
}

func (lines *lines) String() string {
	lines.mutex.Lock()
	defer lines.mutex.Unlock()
	return lines.text.String()
}

// about are the lines about an object.
func (lines *lines) about(t testing.TB, name string) []map[string]any {
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

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// record is an entry of rsh for its launch: a host that was reached, or why it was not.
type record struct {
	Host    string           `json:"host"`
	Trouble protocol.Trouble `json:"trouble,omitempty"`
	Message string           `json:"message,omitempty"`
	DNS     time.Duration    `json:"dns,omitempty"`
	Connect time.Duration    `json:"connect,omitempty"`
	At      time.Time        `json:"at"`
	// Ended means that the processes of the host have exited. It is only recorded if mpirun
	// keeps the session open until then, as Hydra does.
	Ended bool `json:"ended,omitempty"`
}

// reached reports whether a record is about a successful login.
func (r record) reached() bool { return r.Trouble == "" && !r.Ended }

// recordsFile is the path of the records; if it is empty, none are written.
type recordsFile string

// write appends a line. Lines of this size are written atomically, so many processes can
// write at a time.
func (rf recordsFile) write(entry record) {
	if rf == "" {
		return
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return
	}
	to, err := os.OpenFile(string(rf), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer to.Close()
	_, _ = to.Write(append(line, '\n'))
}

func (rf recordsFile) read() []record {
	content, err := os.ReadFile(string(rf))
	if err != nil {
		return nil
	}
	var records []record
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		var entry record
		if json.Unmarshal(lines.Bytes(), &entry) == nil {
			records = append(records, entry)
		}
	}
	return records
}

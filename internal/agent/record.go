package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// record is what one rsh tells the launch that it belongs to: a host that was
// reached, or why it was not.
type record struct {
	Host    string           `json:"host"`
	Trouble protocol.Trouble `json:"trouble,omitempty"`
	Message string           `json:"message,omitempty"`
	DNS     time.Duration    `json:"dns,omitempty"`
	Connect time.Duration    `json:"connect,omitempty"`
	At      time.Time        `json:"at"`
	// Ended: the host's part of the run is over. It is only recorded where mpirun
	// keeps the session open for as long as that, as Hydra does.
	Ended bool `json:"ended,omitempty"`
}

// reached tells whether a record is about a login that succeeded.
func (entry record) reached() bool { return entry.Trouble == "" && !entry.Ended }

// recordsFile is where records are kept; an empty name keeps none.
type recordsFile string

// write adds a line. Lines of this size are written in one piece, so that many
// can write at a time.
func (file recordsFile) write(entry record) {
	if file == "" {
		return
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return
	}
	to, err := os.OpenFile(string(file), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer to.Close()
	_, _ = to.Write(append(line, '\n'))
}

func (file recordsFile) read() []record {
	content, err := os.ReadFile(string(file))
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

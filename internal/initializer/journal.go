// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"bufio"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"sync"
)

// journal records which files are complete, one line each, so that a restarted initializer
// neither downloads nor reads them again.
type journal struct {
	mutex sync.Mutex
	file  *os.File
	uri   string
	// lines of earlier runs, by path.
	lines map[string]*journalLine
	torn  bool
}

// journalLine is a file or, if it has a URI, the source of all following lines.
type journalLine struct {
	URI     string `json:"uri,omitempty"`
	Path    string `json:"path,omitempty"`
	Size    int64  `json:"size,omitempty"`
	Version string `json:"version,omitempty"`
	// Modified is the file's modification time on the volume, in nanoseconds.
	Modified int64 `json:"modified,omitempty"`

	// wanted is true if the source still has the file.
	wanted bool
}

// describes tells whether a file is unchanged since the line was written.
func (j journalLine) describes(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() == j.Size && info.ModTime().UnixNano() == j.Modified
}

// read reads the existing journal. A line that was cut off by a crash is ignored: its file
// is downloaded, or checked, again.
func (j *journal) read() error {
	j.lines = map[string]*journalLine{}
	if _, err := j.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	reader := bufio.NewReader(j.file)
	for {
		text, err := reader.ReadBytes('\n')
		if err == io.EOF {
			j.torn = len(text) > 0
			return nil
		}
		if err != nil {
			return err
		}
		line := &journalLine{}
		switch {
		case json.Unmarshal(text, line) != nil:
		case line.URI != "":
			j.uri = line.URI
			j.lines = map[string]*journalLine{}
		case checkPath(line.Path) == nil:
			j.lines[line.Path] = line
		}
	}
}

// reset clears the journal and starts with another source.
func (j *journal) reset(uri string) error {
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	j.uri, j.torn, j.lines = uri, false, map[string]*journalLine{}
	return j.append(journalLine{URI: uri})
}

// add records that a file is complete.
func (j *journal) add(line journalLine) error {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	return j.append(line)
}

func (j *journal) append(line journalLine) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if j.torn {
		text = append([]byte("\n"), text...)
		j.torn = false
	}
	_, err = j.file.Write(append(text, '\n'))
	return err
}

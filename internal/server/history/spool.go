// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/trireme-mpi/trireme/internal/engine/history"
)

// maxText is how much of one line is kept.
const maxText = 64 << 10

// spool keeps the newest lines of a job's log in two files: when the second is full, it
// replaces the first. So thousands of running jobs need little memory, and each a bounded
// part of the disk.
type spool struct {
	root *os.Root
	name string
	// limit of both files together, in bytes.
	limit int64

	file   *os.File
	writer *bufio.Writer
	size   int64
	// lines in the current file and in the one before, and lines that were dropped.
	lines, before, omitted int
	err                    error
}

func newSpool(root *os.Root, name string, limit int64) *spool {
	return &spool{root: root, name: name, limit: limit}
}

// add adds a line. After an error it drops all lines, and read returns the error.
func (s *spool) add(line history.Line) {
	if s.err != nil {
		s.omitted++
		return
	}
	if len(line.Text) > maxText {
		line.Text = strings.ToValidUTF8(line.Text[:maxText], "") + fmt.Sprintf(" … (%d more bytes)", len(line.Text)-maxText)
	}
	if s.err = s.write(line); s.err != nil {
		s.omitted++
	}
}

func (s *spool) write(line history.Line) error {
	encoded, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if s.file == nil || s.size+int64(len(encoded)) > s.limit/2 {
		if err := s.rotate(); err != nil {
			return err
		}
	}
	s.size += int64(len(encoded)) + 1
	s.lines++
	_, err = s.writer.Write(append(encoded, '\n'))
	return err
}

// rotate starts a new file.
func (s *spool) rotate() error {
	if s.file != nil {
		if err := errors.Join(s.writer.Flush(), s.file.Close()); err != nil {
			return err
		}
		if err := s.root.Rename(s.name, s.name+".before"); err != nil {
			return err
		}
	}
	file, err := s.root.OpenFile(s.name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	s.file, s.writer, s.size = file, bufio.NewWriter(file), 0
	s.omitted += s.before
	s.before, s.lines = s.lines, 0
	return nil
}

// read returns the lines as JSON, one on each line, and what is missing.
func (s *spool) read() (log []byte, kept, omitted int, err error) {
	if s.file == nil {
		return nil, 0, s.omitted, s.err
	}
	flushed := s.writer.Flush()
	older, olderErr := s.root.ReadFile(s.name + ".before")
	if errors.Is(olderErr, fs.ErrNotExist) {
		olderErr = nil
	}
	newer, newerErr := s.root.ReadFile(s.name)
	log = bytes.Join([][]byte{older, newer}, nil)
	// A disk that is full may have cut the last line off.
	log = log[:bytes.LastIndexByte(log, '\n')+1]
	kept = bytes.Count(log, []byte("\n"))
	return log, kept, s.omitted + s.before + s.lines - kept, errors.Join(s.err, flushed, olderErr, newerErr)
}

// remove deletes the files.
func (s *spool) remove() {
	if s.file != nil {
		_ = s.file.Close()
	}
	_ = s.root.Remove(s.name)
	_ = s.root.Remove(s.name + ".before")
}

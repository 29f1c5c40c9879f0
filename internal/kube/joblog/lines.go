// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"time"
)

// maxPiece is how much of one line is held. A longer line is passed on in pieces.
const maxPiece = 4 << 20

// scanner splits a stream into lines, and lines that are too long into pieces.
type scanner struct {
	reader  *bufio.Reader
	longest int
}

func newScanner(stream io.Reader, longest int) *scanner {
	return &scanner{reader: bufio.NewReaderSize(stream, min(16<<10, longest)), longest: longest}
}

// next returns a line, or a piece of one that is not complete. The rest at the end of a
// stream is returned together with the error.
func (s *scanner) next() (text string, complete bool, err error) {
	var buffer []byte
	for {
		chunk, err := s.reader.ReadSlice('\n')
		buffer = append(buffer, chunk...)
		switch {
		case err == nil:
			return string(buffer[:len(buffer)-1]), true, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return string(buffer), false, err
		case len(buffer) >= s.longest:
			return string(buffer), false, nil
		}
	}
}

// splitTime splits a line into the time that the kubelet puts in front and the rest.
func splitTime(text string) (at time.Time, rest string, found bool) {
	stamp, rest, found := strings.Cut(text, " ")
	if !found {
		stamp = text
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return time.Time{}, text, false
	}
	return at, rest, true
}

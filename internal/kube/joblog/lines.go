package joblog

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"time"
)

// longestPiece is how much of one line is held. A longer line is handed on in
// pieces.
const longestPiece = 4 << 20

// scanner cuts a stream into lines, and lines that are too long into pieces.
type scanner struct {
	reader  *bufio.Reader
	longest int
}

func newScanner(stream io.Reader, longest int) *scanner {
	return &scanner{reader: bufio.NewReaderSize(stream, min(16<<10, longest)), longest: longest}
}

// next is a line, or a piece of one that is not complete. What a stream ends with
// comes together with the error.
func (scanner *scanner) next() (text string, complete bool, err error) {
	var gathered []byte
	for {
		chunk, err := scanner.reader.ReadSlice('\n')
		gathered = append(gathered, chunk...)
		switch {
		case err == nil:
			return string(gathered[:len(gathered)-1]), true, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return string(gathered), false, err
		case len(gathered) >= scanner.longest:
			return string(gathered), false, nil
		}
	}
}

// splitTime takes the time off a line that kubelet has written it in front of.
func splitTime(text string) (at time.Time, rest string, found bool) {
	word, rest, found := strings.Cut(text, " ")
	if !found {
		word = text
	}
	at, err := time.Parse(time.RFC3339Nano, word)
	if err != nil {
		return time.Time{}, text, false
	}
	return at, rest, true
}

// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/engine/redact"
)

// fromLines returns a stream of lines, which ends with an error if there is one.
func fromLines(lines []Line, err error) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for _, line := range lines {
			if !yield(line, nil) {
				return
			}
		}
		if err != nil {
			yield(Line{}, err)
		}
	}
}

// shownOf returns the redacted lines, as pod: text, and the error.
func shownOf(lines iter.Seq2[Line, error]) (shown []string) {
	for line, err := range lines {
		if err != nil {
			return append(shown, "error: "+err.Error())
		}
		shown = append(shown, fmt.Sprintf("%s/%d %s", line.Pod, line.Rank, line.Text))
	}
	return shown
}

// keyLines returns the lines of a private key.
func keyLines(kind string, lines int) []string {
	key := []string{"-----BEGIN " + kind + "-----"}
	for i := range lines {
		key = append(key, fmt.Sprintf("SecretKeyMaterial%03dAbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/abc", i))
	}
	return append(key, "shortSecret==", "-----END "+kind+"-----")
}

// Keys of several pods and ranks are interleaved with other lines.
func TestKeysOfManyLines(t *testing.T) {
	for _, kind := range []string{"PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"} {
		t.Run(kind, func(t *testing.T) {
			var lines []Line
			var want []string
			for i, text := range keyLines(kind, 30) {
				shown := redact.Mark
				if strings.HasPrefix(text, "--") {
					shown = text
				}
				for _, rank := range []int{0, 1} {
					lines = append(lines, Line{Pod: "a", Rank: rank, Text: text}, Line{Pod: "b", Rank: rank, Text: fmt.Sprint("loss ", i)})
					want = append(want, fmt.Sprintf("a/%d %s", rank, shown), fmt.Sprintf("b/%d loss %d", rank, i))
				}
			}
			lines = append(lines, Line{Pod: "a", Text: "trains on"})
			want = append(want, "a/0 trains on")
			if diff := cmp.Diff(want, shownOf(Redacted(fromLines(lines, nil)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// If a stream ends or fails within a line, the held-back text is returned.
func TestStreamsEndInALine(t *testing.T) {
	lines := []Line{{Pod: "b", Text: "half a token=a1b2", Continues: true}, {Pod: "a", Text: "well", Continues: true}, {Pod: "b", Text: "c3d4", Continues: true}}
	want := []string{"b/0 ", "a/0 ", "b/0 ", "a/0 well", "b/0 half a token=[redacted]"}
	if diff := cmp.Diff(want, shownOf(Redacted(fromLines(lines, nil)))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(append(want, "error: broken"), shownOf(Redacted(fromLines(lines, fmt.Errorf("broken"))))); diff != "" {
		t.Error(diff)
	}
	for range Redacted(fromLines(lines, nil)) {
		break
	}
}

// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"fmt"
	"strings"
	"testing"
)

// keyLines are the lines of a key.
func keyLines(kind string, lines int) []string {
	key := []string{"-----BEGIN " + kind + "-----"}
	for i := range lines {
		key = append(key, fmt.Sprintf("SecretKeyMaterial%03dAbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/abc", i))
	}
	return append(key, "shortSecret==", "-----END "+kind+"-----")
}

// A key whose lines begin with the name of a variable or a tag of mpirun.
func TestPrefixedKeys(t *testing.T) {
	for _, before := range []string{"PRIVATE_KEY=\"", "private_key: ", "[1,3]<stdout>:", "    "} {
		filter := New()
		for _, line := range keyLines("RSA PRIVATE KEY", 20) {
			tag := before
			if strings.Contains(before, "KEY") {
				tag = ""
			}
			if strings.HasPrefix(line, "-----BEGIN") {
				tag = before
			}
			if shown := filter.Line("pod", tag+line, false); strings.Contains(shown, "Secret") {
				t.Fatalf("%s: %s", before, shown)
			}
		}
		if shown := filter.Line("pod", "loss 0.1", false); shown != "loss 0.1" {
			t.Errorf("%s: %s", before, shown)
		}
	}
}

// A key without an END line must not hide the rest of the log.
func TestKeyWithoutEnd(t *testing.T) {
	for name, test := range map[string]struct {
		line string
		most int
	}{"ordinary lines": {"loss 0.1", maxPlainLines + 1}, "lines like keys": {keyLines("", 1)[1], maxBlockLines + 1}, "long lines": {strings.Repeat("aB3/", 1<<13), 6}} {
		filter := New()
		filter.Line("pod", "-----BEGIN PRIVATE KEY-----", false)
		hidden := 0
		for filter.Line("pod", test.line+".", false) == Mark {
			if hidden++; hidden > test.most {
				t.Fatalf("%s: %d lines are hidden", name, hidden)
			}
		}
		if hidden < test.most-2 {
			t.Errorf("%s: only %d lines are hidden", name, hidden)
		}
	}
}

// The state is bounded, in the number of sources and in bytes of each.
func TestMemoryIsBounded(t *testing.T) {
	filter := New()
	piece := strings.Repeat("x", 20<<10)
	for source := range 3 * maxSources {
		filter.Line(fmt.Sprint(source), piece, true)
		filter.Line(fmt.Sprint("key ", source), "-----BEGIN PRIVATE KEY-----", false)
	}
	held := 0
	for _, state := range filter.sources {
		held += len(state.held)
	}
	if len(filter.sources) > maxSources+1 || held > (maxSources+1)*window {
		t.Errorf("%d sources hold %d bytes", len(filter.sources), held)
	}
	filter = New()
	for source := range 100 {
		filter.Line(fmt.Sprint(source), "loss 0.1", false)
	}
	if len(filter.sources) != 0 {
		t.Errorf("%d sources have a state without need", len(filter.sources))
	}
}

// A failure message may have several lines, and a key may span them.
func TestText(t *testing.T) {
	text := "the image has no python3 train.py --token=a1b2c3d4e5f6\nsee password: hunter2 there\n" + strings.Join(keyLines("PRIVATE KEY", 3), "\n") + "\nand that is all"
	want := "the image has no python3 train.py --token=[redacted]\nsee password: [redacted] there\n-----BEGIN PRIVATE KEY-----\n[redacted]\n[redacted]\n[redacted]\n[redacted]\n-----END PRIVATE KEY-----\nand that is all"
	if got := Text(text); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if Text("") != "" || Text(Text(text)) != want {
		t.Error("a text without secrets is changed")
	}
}

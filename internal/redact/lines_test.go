package redact

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/joblog"
)

// fromLines is a stream of lines that ends with an error, if there is one.
func fromLines(lines []joblog.Line, err error) iter.Seq2[joblog.Line, error] {
	return func(yield func(joblog.Line, error) bool) {
		for _, line := range lines {
			if !yield(line, nil) {
				return
			}
		}
		if err != nil {
			yield(joblog.Line{}, err)
		}
	}
}

// read is what is shown of lines, written as pod: text, and the error.
func read(lines iter.Seq2[joblog.Line, error]) (shown []string) {
	for line, err := range lines {
		if err != nil {
			return append(shown, "error: "+err.Error())
		}
		shown = append(shown, fmt.Sprintf("%s/%d %s", line.Pod, line.Rank, line.Text))
	}
	return shown
}

// keyLines are those of a key.
func keyLines(kind string, lines int) []string {
	key := []string{"-----BEGIN " + kind + "-----"}
	for i := range lines {
		key = append(key, fmt.Sprintf("SecretKeyMaterial%03dAbCdEfGhIjKlMnOpQrStUvWxYz0123456789+/abc", i))
	}
	return append(key, "shortSecret==", "-----END "+kind+"-----")
}

// Keys of several pods and ranks come at the same time, with other lines between.
func TestKeysOfManyLines(t *testing.T) {
	for _, kind := range []string{"PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "DSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"} {
		t.Run(kind, func(t *testing.T) {
			var lines []joblog.Line
			var want []string
			for i, text := range keyLines(kind, 30) {
				shown := Mark
				if strings.HasPrefix(text, "--") {
					shown = text
				}
				for _, rank := range []int{0, 1} {
					lines = append(lines, joblog.Line{Pod: "a", Rank: rank, Text: text}, joblog.Line{Pod: "b", Rank: rank, Text: fmt.Sprint("loss ", i)})
					want = append(want, fmt.Sprintf("a/%d %s", rank, shown), fmt.Sprintf("b/%d loss %d", rank, i))
				}
			}
			lines = append(lines, joblog.Line{Pod: "a", Text: "trains on"})
			want = append(want, "a/0 trains on")
			if diff := cmp.Diff(want, read(Lines(fromLines(lines, nil)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A key that an environment's variable begins with, or a tag of mpirun.
func TestKeysBehindSomething(t *testing.T) {
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

// A key without an end does not hide the log for ever.
func TestAKeyWithoutEnd(t *testing.T) {
	for name, test := range map[string]struct {
		line string
		most int
	}{"ordinary lines": {"loss 0.1", mostPlainLines + 1}, "lines like keys": {keyLines("", 1)[1], mostBlockLines + 1}, "long lines": {strings.Repeat("aB3/", 1<<13), 6}} {
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

// What is remembered is bounded, in sources and in bytes of each.
func TestMemoryIsBounded(t *testing.T) {
	filter := New()
	piece := strings.Repeat("x", 20<<10)
	for source := range 3 * mostSources {
		filter.Line(fmt.Sprint(source), piece, true)
		filter.Line(fmt.Sprint("key ", source), "-----BEGIN PRIVATE KEY-----", false)
	}
	held := 0
	for _, state := range filter.sources {
		held += len(state.held)
	}
	if len(filter.sources) > mostSources+1 || held > (mostSources+1)*window {
		t.Errorf("%d sources hold %d bytes", len(filter.sources), held)
	}
	filter = New()
	for source := range 100 {
		filter.Line(fmt.Sprint(source), "loss 0.1", false)
	}
	if len(filter.sources) != 0 {
		t.Errorf("%d sources are remembered without need", len(filter.sources))
	}
}

// A stream that ends, or breaks, in the middle of a line: what was held back is shown.
func TestStreamsEndInALine(t *testing.T) {
	lines := []joblog.Line{{Pod: "b", Text: "half a token=a1b2", Continues: true}, {Pod: "a", Text: "well", Continues: true}, {Pod: "b", Text: "c3d4", Continues: true}}
	want := []string{"b/0 ", "a/0 ", "b/0 ", "a/0 well", "b/0 half a token=[redacted]"}
	if diff := cmp.Diff(want, read(Lines(fromLines(lines, nil)))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(append(want, "error: broken"), read(Lines(fromLines(lines, fmt.Errorf("broken"))))); diff != "" {
		t.Error(diff)
	}
	for range Lines(fromLines(lines, nil)) {
		break
	}
}

// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A directory with another source may be in use by another job.
func TestDestinationHasAnotherSource(t *testing.T) {
	server := newS3Server(t, map[string]string{"one/a": "a", "one/b": "b", "two/b": "other", "two/c": "c"})
	runner := newRunner(t, server.environment())
	runner.fetched("s3://data/one")
	runner.refused("s3://data/two", fmt.Sprintf("%s already holds s3://data/one; use another PVC for this job, or empty that directory first", runner.directory))
	if diff := cmp.Diff(map[string]string{"a": "a", "b": "b"}, runner.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	// Incomplete content was never used, and is removed.
	if err := os.Remove(filepath.Join(runner.directory, markerFile)); err != nil {
		t.Fatal(err)
	}
	write(t, runner.directory, map[string]string{"mine": "stays", ".trireme-0123.part": "half"})
	runner.fetched("s3://data/two")
	if diff := cmp.Diff(map[string]string{"b": "other", "c": "c", "mine": "stays"}, runner.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if len(runner.parts()) > 0 {
		t.Errorf("parts of the other source: %v", runner.parts())
	}
}

func TestMarkerIsRemovedWhileIncomplete(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a"})
	runner := newRunner(t, server.environment())
	runner.fetched("s3://data/set")
	server.put("set/b", "b")
	seen := true
	server.before = func(_ http.ResponseWriter, request *http.Request) bool {
		if strings.HasSuffix(request.URL.Path, "/b") {
			seen = runner.complete()
		}
		return false
	}
	runner.fetched("s3://data/set")
	if seen {
		t.Error("the marker was there while a file was missing")
	}
	if !runner.complete() {
		t.Error("there is no marker at the end")
	}
}

// After a crash, a truncated journal costs at most a check of the files.
func TestTruncatedJournal(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a", "set/b": "b", "set/c": "c"})
	runner := newRunner(t, server.environment())
	runner.fetched("s3://data/set")
	name := filepath.Join(runner.directory, journalFile)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []int{len(text) - 5, len(text) / 2, 3, 0} {
		if err := os.WriteFile(name, text[:kept], 0o666); err != nil {
			t.Fatal(err)
		}
		server.asked()
		for range 2 {
			runner.fetched("s3://data/set")
		}
		if asked := server.asked(); len(asked) > 0 {
			t.Errorf("with %d bytes of the journal: asked for %q", kept, asked)
		}
	}
	// It cannot name a file outside of the directory.
	outside := filepath.Join(runner.directory, "..", "outside")
	write(t, filepath.Dir(outside), map[string]string{"outside": "x"})
	info, err := os.Stat(outside)
	if err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf(`{"path":"../outside","size":1,"version":"x","modified":%d}`+"\n", info.ModTime().UnixNano())
	if err := os.WriteFile(name, append(text, line...), 0o666); err != nil {
		t.Fatal(err)
	}
	runner.fetched("s3://data/set")
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("a file outside of the directory was removed: %v", err)
	}
}

// Jobs that share a PVC may start at the same time: one downloads, the others wait and
// find everything complete.
func TestTwoInitializers(t *testing.T) {
	content := random(1 << 20)
	server := newS3Server(t, map[string]string{"set/a": content})
	proceed := make(chan struct{})
	server.before = func(_ http.ResponseWriter, request *http.Request) bool {
		if strings.HasSuffix(request.URL.Path, "/a") {
			<-proceed
		}
		return false
	}
	runner := newRunner(t, server.environment())
	runner.output = &lockedBuffer{}
	done := make(chan result, 2)
	for range 2 {
		go func() { done <- runner.fetch("s3://data/set") }()
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !strings.Contains(runner.output.String(), "another initializer"); {
		time.Sleep(10 * time.Millisecond)
	}
	close(proceed)
	var output string
	for range 2 {
		got := <-done
		if got.code != 0 {
			t.Errorf("exit code %d:\n%s", got.code, got.output)
		}
		output += got.output
	}
	if asked, want := server.asked(), []string{"GET set/a"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if want := "another initializer is writing to"; !strings.Contains(output, want) {
		t.Errorf("no %q in\n%s", want, output)
	}
}

// The directory may be a symbolic link within its volume, but not to the outside.
func TestDestinationIsALink(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a"})
	runner := newRunner(t, server.environment())
	parent := filepath.Dir(runner.directory)
	if err := os.MkdirAll(filepath.Join(parent, "sets"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sets", runner.directory); err != nil {
		t.Fatal(err)
	}
	runner.fetched("s3://data/set")
	if got := filesIn(t, filepath.Join(parent, "sets")); got["a"] != "a" {
		t.Errorf("files: %v", got)
	}
	outside := t.TempDir()
	if err := os.Remove(runner.directory); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, runner.directory); err != nil {
		t.Fatal(err)
	}
	runner.refused("s3://data/set", fmt.Sprintf("cannot write to %s: a symbolic link in the path points outside the directory; remove the link from the PVC", runner.directory))
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// Nothing is downloaded if the volume is too small.
func TestVolumeTooSmall(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a"})
	server.before = func(writer http.ResponseWriter, request *http.Request) bool {
		if !request.URL.Query().Has("list-type") {
			return false
		}
		fmt.Fprint(writer, `<ListBucketResult><Name>data</Name><Contents><Key>set/a</Key><Size>1152921504606846976</Size><ETag>"x"</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>`)
		return true
	}
	runner := newRunner(t, server.environment())
	got := runner.fetch("s3://data/set")
	for _, want := range []string{"it needs 1.0 EiB of free space, but the volume of " + runner.directory + " has only ", "; use a larger PVC: set storage.size, or another claimName"} {
		if got.code != exitFailure || !strings.Contains(got.message, want) {
			t.Errorf("exit code %d, no %q in\n%s", got.code, want, got.message)
		}
	}
	if asked := server.asked(); len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
}

func TestDestinationConflicts(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a", "set/b/c": "c"})
	runner := newRunner(t, server.environment())
	write(t, runner.directory, map[string]string{"a/x": "x"})
	runner.refused("s3://data/set", `cannot write "a": another file or directory with this name exists; remove it from the PVC, or use a new PVC`)
	runner = newRunner(t, server.environment())
	write(t, runner.directory, map[string]string{"b": "x"})
	runner.refused("s3://data/set", `cannot create the directory "b": another file or directory with this name exists; remove it from the PVC, or use a new PVC`)
}

// Every message about a volume.
func TestMessagesAboutVolumes(t *testing.T) {
	inTheWay := `cannot write "a": another file or directory with this name exists; remove it from the PVC, or use a new PVC`
	cases := map[string]struct {
		err  error
		want string
	}{
		"full":          {syscall.ENOSPC, `no space left to write "a"; use a larger PVC: set storage.size, or another claimName`},
		"over quota":    {syscall.EDQUOT, `no space left to write "a"; use a larger PVC: set storage.size, or another claimName`},
		"read-only":     {syscall.EROFS, `cannot write "a": the volume is read-only; use a writable PVC`},
		"not allowed":   {syscall.EACCES, fmt.Sprintf(`cannot write "a": permission denied for user %d; change the owner or group of the files on the PVC to this user, or use a new PVC`, os.Getuid())},
		"not permitted": {syscall.EPERM, fmt.Sprintf(`cannot write "a": permission denied for user %d; change the owner or group of the files on the PVC to this user, or use a new PVC`, os.Getuid())},
		"a directory":   {syscall.EISDIR, inTheWay},
		"no directory":  {syscall.ENOTDIR, inTheWay},
		"broken":        {syscall.EIO, `cannot write "a": input/output error; check the PVC and its volume`},
		"stale":         {syscall.ESTALE, `cannot write "a": stale file handle; check the PVC and its volume`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := explainDiskError(&fs.PathError{Op: "write", Path: "/somewhere/else", Err: tc.err}, `write "a"`)
			if err.Error() != tc.want {
				t.Errorf("got\n%v\nwant\n%s", err, tc.want)
			}
			if !errors.Is(err, tc.err) {
				t.Error("the cause is lost")
			}
			if failure, _ := asFailure(err); failure.temporary {
				t.Error("it would be tried again")
			}
		})
	}
}

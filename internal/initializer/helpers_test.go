// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// quick returns short timings for local servers.
func quick() timing {
	return timing{
		maxIdle: 10 * time.Second, maxFirstResponse: 10 * time.Second, stall: 5 * time.Second,
		pause: time.Millisecond, maxPause: 10 * time.Millisecond, report: time.Hour,
	}
}

// result of a run.
type result struct {
	code            int
	output, message string
}

// runner runs the command line as a pod would, and checks all output for credentials.
type runner struct {
	*testing.T
	directory   string
	environment map[string]string
	timing      timing
	context     context.Context
	// output has the output of all runs so far, for tests that watch it.
	output *lockedBuffer
}

func newRunner(t *testing.T, environment map[string]string) *runner {
	return &runner{T: t, directory: filepath.Join(t.TempDir(), "workspace", "dataset"), environment: environment, timing: quick(), context: t.Context()}
}

func (r *runner) run(arguments ...string) result {
	r.Helper()
	log := filepath.Join(r.TempDir(), "termination-log")
	lookup := func(name string) string {
		if name == terminationLogVariable {
			return log
		}
		return r.environment[name]
	}
	var output lockedBuffer
	said := io.Writer(&output)
	if r.output != nil {
		said = io.MultiWriter(&output, r.output)
	}
	got := result{code: run(r.context, arguments, lookup, said, r.timing)}
	got.output = output.String()
	if text, err := os.ReadFile(log); err == nil {
		got.message = string(text)
	}
	for _, name := range credentialVariables {
		secret := strings.TrimSpace(r.environment[name])
		if secret != "" && strings.Contains(got.output+got.message, secret) {
			r.Errorf("the value of %s is in the output:\n%s", name, got.output)
		}
	}
	if len(got.message) > 2048 || strings.Contains(got.message, "\n") {
		r.Errorf("the termination message is not one short line: %q", got.message)
	}
	return got
}

// fetch fetches a dataset into the runner's directory.
func (r *runner) fetch(uri string, flags ...string) result {
	r.Helper()
	return r.run(append(append([]string{"fetch", "--kind", "dataset"}, flags...), uri, r.directory)...)
}

// fetched fetches, and fails the test on an error.
func (r *runner) fetched(uri string, flags ...string) string {
	r.Helper()
	got := r.fetch(uri, flags...)
	if got.code != 0 {
		r.Fatalf("exit code %d:\n%s", got.code, got.output)
	}
	if got.message != "" {
		r.Errorf("a termination message of a run that succeeded: %s", got.message)
	}
	return got.output
}

// refused fetches, and fails the test if the last message is not the expected one.
func (r *runner) refused(uri, want string, flags ...string) {
	r.Helper()
	got := r.fetch(uri, flags...)
	if got.code != exitFailure {
		r.Fatalf("exit code %d:\n%s", got.code, got.output)
	}
	if want = fmt.Sprintf("cannot fetch the dataset %s: %s", uri, want); got.message != want {
		r.Errorf("message\n%s\nwant\n%s", got.message, want)
	}
	if !strings.Contains(got.output, got.message) {
		r.Errorf("the log does not have the message:\n%s", got.output)
	}
}

// files of the directory with their contents, without the initializer's own.
func (r *runner) files() map[string]string {
	r.Helper()
	return filesIn(r.T, r.directory)
}

func filesIn(t *testing.T, directory string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, found fs.DirEntry, err error) error {
		if err != nil || found.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		if err != nil || isOwn(name) {
			return err
		}
		content, err := os.ReadFile(path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// parts returns the partial downloads.
func (r *runner) parts() (parts []string) {
	found, err := filepath.Glob(filepath.Join(r.directory, ownPrefix+"*"+partSuffix))
	if err != nil {
		r.Fatal(err)
	}
	return found
}

func (r *runner) complete() bool {
	_, err := os.Stat(filepath.Join(r.directory, markerFile))
	return err == nil
}

// write creates files below a directory.
func write(t *testing.T, directory string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// random returns content that is the same in every run, and does not compress.
func random(length int) string {
	content, state := make([]byte, length), uint32(2463534242)
	for i := range content {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		content[i] = byte(state)
	}
	return string(content)
}

type lockedBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (l *lockedBuffer) Write(text []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.Write(text)
}

func (l *lockedBuffer) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.String()
}

// spoiled is a response with a fault.
type spoiled struct {
	http.ResponseWriter
	// cutAfter is the number of bytes after which the connection is closed; negative for
	// never.
	cutAfter int
	// stallAfter is the number of bytes after which nothing is sent; negative for never.
	stallAfter int
	// flip changes the first byte.
	flip bool
	// sent counts the bytes that were sent.
	sent  *int64
	count int
	done  <-chan struct{}
}

func (s *spoiled) Write(text []byte) (int, error) {
	if s.flip && s.count == 0 && len(text) > 0 {
		text = append([]byte{text[0] ^ 1}, text[1:]...)
	}
	limit := len(text)
	if s.cutAfter >= 0 {
		limit = min(limit, max(s.cutAfter-s.count, 0))
	}
	if s.stallAfter >= 0 {
		limit = min(limit, max(s.stallAfter-s.count, 0))
	}
	count, err := s.ResponseWriter.Write(text[:limit])
	s.count += count
	if s.sent != nil {
		*s.sent += int64(count)
	}
	if err == nil && limit < len(text) {
		_ = http.NewResponseController(s.ResponseWriter).Flush()
		if s.stallAfter >= 0 {
			<-s.done
		}
		panic(http.ErrAbortHandler)
	}
	return count, err
}

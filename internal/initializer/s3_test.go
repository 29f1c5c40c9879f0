// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func hexOf(sum []byte) string { return hex.EncodeToString(sum) }

func TestFetchPrefix(t *testing.T) {
	objects := map[string]string{
		"mnist/train/0.png": "zero", "mnist/train/1.png": "one", "mnist/README.md": "read me", "mnist/empty": "",
		"mnist/with space & more/ä?#%41+.txt": "odd", "mnist/": "", "mnist/train/": "",
		"mnist2/other": "not below", "mnistother": "not below", "else": "not below",
		"mnist/.trireme-journal": "of another run",
	}
	below := map[string]string{
		"train/0.png": "zero", "train/1.png": "one", "README.md": "read me", "empty": "", "with space & more/ä?#%41+.txt": "odd",
	}
	cases := map[string]struct {
		uri  string
		want map[string]string
	}{
		"a path":                {uri: "s3://data/mnist", want: below},
		"a path with a slash":   {uri: "s3://data/mnist/", want: below},
		"a folder below":        {uri: "s3://data/mnist/train", want: map[string]string{"0.png": "zero", "1.png": "one"}},
		"one object":            {uri: "s3://data/mnist/train/1.png", want: map[string]string{"1.png": "one"}},
		"one object at the top": {uri: "s3://data/else", want: map[string]string{"else": "not below"}},
		"a whole bucket": {uri: "s3://data", want: map[string]string{
			"mnist/train/0.png": "zero", "mnist/train/1.png": "one", "mnist/README.md": "read me", "mnist/empty": "",
			"mnist/with space & more/ä?#%41+.txt": "odd", "mnist2/other": "not below", "mnistother": "not below", "else": "not below",
			"mnist/.trireme-journal": "of another run",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			runner := newRunner(t, newS3Server(t, objects).environment())
			runner.fetched(tc.uri)
			if diff := cmp.Diff(tc.want, runner.files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if !runner.complete() || len(runner.parts()) > 0 {
				t.Errorf("complete: %t, parts: %v", runner.complete(), runner.parts())
			}
		})
	}
}

func TestListsOfManyPages(t *testing.T) {
	objects := map[string]string{}
	for i := range 1234 {
		objects[fmt.Sprintf("many/%d/%d", i%7, i)] = fmt.Sprint(i)
	}
	runner := newRunner(t, newS3Server(t, objects).environment())
	output := runner.fetched("s3://data/many")
	if got := len(runner.files()); got != 1234 {
		t.Errorf("%d files:\n%s", got, output)
	}
}

func TestSecondRunFetchesChanges(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "a", "set/b": "b", "set/c": "c", "set/d/e": "e"})
	runner := newRunner(t, server.environment())
	runner.fetched("s3://data/set")
	write(t, runner.directory, map[string]string{"mine": "stays", "d/mine": "stays"})
	server.asked()

	output := runner.fetched("s3://data/set")
	if asked := server.asked(); len(asked) > 0 {
		t.Errorf("asked for %q though everything was there", asked)
	}
	if want := "0 files and 0 B left to fetch"; !strings.Contains(output, want) {
		t.Errorf("no %q in\n%s", want, output)
	}

	server.put("set/a", "changed")
	server.remove("set/b")
	server.put("set/new", "new")
	write(t, runner.directory, map[string]string{"c": "spoiled by hand"})
	runner.fetched("s3://data/set")
	asked := server.asked()
	slices.Sort(asked)
	if want := []string{"GET set/a", "GET set/c", "GET set/new"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	want := map[string]string{"a": "changed", "c": "c", "d/e": "e", "new": "new", "mine": "stays", "d/mine": "stays"}
	if diff := cmp.Diff(want, runner.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestExistingFilesAreAdopted(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/right": "right", "set/wrong": "wrong"})
	runner := newRunner(t, server.environment())
	write(t, runner.directory, map[string]string{"right": "right", "wrong": "gnorw"})
	runner.fetched("s3://data/set")
	if asked, want := server.asked(), []string{"GET set/wrong"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

func TestResumeAfterCutConnection(t *testing.T) {
	content := random(3 << 20)
	server := newS3Server(t, map[string]string{"set/large": content, "set/small": "small"})
	server.spoil = func(key string, try int, spoiled *spoiled) {
		if key == "set/large" && try < 4 {
			spoiled.cutAfter = 600_000
		}
	}
	runner := newRunner(t, server.environment())
	runner.fetched("s3://data/set")
	if runner.files()["large"] != content {
		t.Error("the file is not the object")
	}
	// Only bytes of the last connection may be lost.
	if server.sent > int64(len(content))+5*600_000/2 {
		t.Errorf("%d bytes sent for %d", server.sent, len(content))
	}
	ranges := 0
	for _, asked := range server.asked() {
		if strings.HasPrefix(asked, "GET set/large bytes=") {
			ranges++
		}
	}
	if ranges != 4 {
		t.Errorf("%d resumed, want 4", ranges)
	}
}

func TestRestartContinues(t *testing.T) {
	content := random(4 << 20)
	server := newS3Server(t, map[string]string{"set/large": content})
	server.spoil = func(_ string, try int, spoiled *spoiled) { spoiled.cutAfter = max(3<<20-try*(3<<20), 0) }
	runner := newRunner(t, server.environment())
	runner.timing.maxIdle = 200 * time.Millisecond
	runner.refused("s3://data/set", fmt.Sprintf("%s closed the connection; check AWS_ENDPOINT_URL_S3 in the Secret, and that no NetworkPolicy, firewall or missing proxy blocks the namespace", server.host()))
	if runner.complete() || len(runner.parts()) != 1 || len(runner.files()) > 0 {
		t.Fatalf("complete: %t, parts %v, files %d", runner.complete(), runner.parts(), len(runner.files()))
	}
	server.spoil, server.sent = nil, 0
	output := runner.fetched("s3://data/set")
	if runner.files()["large"] != content {
		t.Error("the file is not the object")
	}
	if server.sent > int64(len(content))/2 {
		t.Errorf("%d of %d bytes were sent again:\n%s", server.sent, len(content), output)
	}
}

func TestStalledConnections(t *testing.T) {
	content := random(1 << 20)
	server := newS3Server(t, map[string]string{"set/large": content})
	server.spoil = func(_ string, try int, spoiled *spoiled) {
		if try == 0 {
			spoiled.stallAfter = 500_000
		}
	}
	runner := newRunner(t, server.environment())
	runner.timing.stall = 300 * time.Millisecond
	output := runner.fetched("s3://data/set")
	if runner.files()["large"] != content {
		t.Error("the file is not the object")
	}
	if want := server.host() + " does not respond; retrying in"; !strings.Contains(output, want) {
		t.Errorf("no %q in\n%s", want, output)
	}
}

func TestCorruptObjects(t *testing.T) {
	const corrupt = "it is corrupt at its source, was corrupted in transit, or is being written: restart the job, or upload the file again"
	content := random(100_000)
	cases := map[string]struct {
		spoil func(try int, spoiled *spoiled)
		// before is called before the response, to set headers.
		before func(writer http.ResponseWriter, request *http.Request) bool
		want   string
	}{
		"once":   {spoil: func(try int, spoiled *spoiled) { spoiled.flip = try == 0 }},
		"always": {spoil: func(_ int, spoiled *spoiled) { spoiled.flip = true }, want: `the file "large" has the wrong MD5: expected e72ba52e1c25aaf2f327fdb7536bd246; ` + corrupt},
		"longer than promised": {
			before: answerObject(content + "more"),
			want:   `the file "large" is longer than the announced 97.7 KiB; ` + corrupt,
		},
		"another checksum": {
			before: func(writer http.ResponseWriter, request *http.Request) bool {
				writer.Header().Set("X-Amz-Checksum-Crc32c", "AAAAAA==")
				return false
			},
			want: `the file "large" has the wrong CRC-32C: expected 00000000; ` + corrupt,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := newS3Server(t, map[string]string{"set/large": content})
			server.before = tc.before
			if tc.spoil != nil {
				server.spoil = func(_ string, try int, spoiled *spoiled) { tc.spoil(try, spoiled) }
			}
			runner := newRunner(t, server.environment())
			if tc.want != "" {
				runner.refused("s3://data/set", tc.want)
				if len(runner.files()) > 0 {
					t.Error("the damaged file is in its place")
				}
				return
			}
			runner.fetched("s3://data/set")
			if runner.files()["large"] != content {
				t.Error("the file is not the object")
			}
		})
	}
}

// answerObject responds only to a GET of an object.
func answerObject(content string) func(http.ResponseWriter, *http.Request) bool {
	return func(writer http.ResponseWriter, request *http.Request) bool {
		if request.Method != http.MethodGet || !strings.HasPrefix(request.URL.Path, "/data/set/") {
			return false
		}
		writer.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		_, _ = writer.Write([]byte(content))
		return true
	}
}

func TestCompressedContentIsKept(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a.gz": "\x1f\x8bnot really"})
	server.before = func(writer http.ResponseWriter, _ *http.Request) bool {
		writer.Header().Set("Content-Encoding", "gzip")
		return false
	}
	runner := newRunner(t, server.environment())
	runner.fetched("s3://data/set/a.gz")
	if got := runner.files()["a.gz"]; got != "\x1f\x8bnot really" {
		t.Errorf("stored %q", got)
	}
}

func TestInvalidObjectKeys(t *testing.T) {
	const remedy = "; rename or remove the object, or fetch a prefix without it"
	cases := map[string]struct{ key, want string }{
		"a way out":           {"set/../../outside", `the object "set/../../outside" cannot be a file: its path has .. segments` + remedy},
		"a way out, later":    {"set/a/../../../outside", `the object "set/a/../../../outside" cannot be a file: its path has .. segments` + remedy},
		"an absolute path":    {"set//etc/passwd", `the object "set//etc/passwd" cannot be a file: its path is absolute` + remedy},
		"an empty part":       {"set/a//b", `the object "set/a//b" cannot be a file: its path has an empty or . segment, or is not valid UTF-8` + remedy},
		"a dot":               {"set/./b", `the object "set/./b" cannot be a file: its path has an empty or . segment, or is not valid UTF-8` + remedy},
		"a name too long":     {"set/" + strings.Repeat("x", 256), `the object "set/` + strings.Repeat("x", 256) + `" cannot be a file: a segment of its path is longer than 255 bytes` + remedy},
		"a folder with bytes": {"set/folder/", `the object "set/folder/" cannot be a file: its path has an empty or . segment, or is not valid UTF-8` + remedy},
		"a file and a folder": {"set/good/too", `"good" and "good/too" conflict: the first is a file where the second needs a directory; rename one of them at the source`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			runner := newRunner(t, newS3Server(t, map[string]string{"set/good": "good", tc.key: "bad"}).environment())
			runner.refused("s3://data/set", tc.want)
			if len(runner.files()) > 0 {
				t.Errorf("files: %v", runner.files())
			}
			if _, err := os.Lstat(filepath.Join(runner.directory, "..", "outside")); err == nil {
				t.Error("a file outside of the directory")
			}
		})
	}
}

func TestLinksInDestination(t *testing.T) {
	server := newS3Server(t, map[string]string{"set/a": "new", "set/folder/b": "new"})
	outside := t.TempDir()
	write(t, outside, map[string]string{"a": "old", "b": "old"})

	runner := newRunner(t, server.environment())
	write(t, runner.directory, nil)
	if err := os.MkdirAll(runner.directory, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(outside, "a"), filepath.Join(runner.directory, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(runner.directory, "folder")); err != nil {
		t.Fatal(err)
	}
	runner.refused("s3://data/set", `cannot create the directory "folder": a symbolic link in the path points outside the directory; remove the link from the PVC`)
	if err := os.Remove(filepath.Join(runner.directory, "folder")); err != nil {
		t.Fatal(err)
	}
	runner.fetched("s3://data/set")
	if diff := cmp.Diff(map[string]string{"a": "old", "b": "old"}, filesIn(t, outside)); diff != "" {
		t.Errorf("outside of the directory (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"a": "new", "folder/b": "new"}, runner.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestObjectChangesDuringDownload(t *testing.T) {
	content := random(1 << 20)
	server := newS3Server(t, map[string]string{"set/large": content})
	server.spoil = func(_ string, _ int, spoiled *spoiled) {
		spoiled.cutAfter = 500_000
		server.put("set/large", random(900_000))
	}
	newRunner(t, server.environment()).refused("s3://data/set",
		`the object "set/large" in bucket "data" changed while it was fetched; restart the job when nothing changes it`)
}

// An interrupted list continues after its last key.
func TestListContinuesAfterError(t *testing.T) {
	objects := map[string]string{}
	for i := range 2100 {
		objects[fmt.Sprintf("many/%04d", i)] = ""
	}
	server := newS3Server(t, objects)
	var asked []string
	server.before = func(writer http.ResponseWriter, request *http.Request) bool {
		query := request.URL.Query()
		if !query.Has("list-type") {
			return false
		}
		asked = append(asked, query.Get("start-after"))
		switch {
		case query.Has("continuation-token") && len(asked) < 4:
			s3Error(writer, http.StatusServiceUnavailable, "SlowDown", "")
			return true
		case len(asked) == 4:
			// Half a page, then the connection ends.
			_, _ = writer.Write([]byte("<ListBucketResult><Name>data</Name>"))
			_ = http.NewResponseController(writer).Flush()
			<-request.Context().Done()
			return true
		}
		return false
	}
	environment := server.environment()
	bucket, err := newBucket(location{scheme: schemeS3, container: "data", path: "many"}, func(name string) string { return environment[name] }, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for range 5 {
		if entries, err = bucket.list(t.Context()); err == nil {
			break
		}
		if failure, explained := asFailure(err); !explained || !failure.temporary {
			t.Fatal(err)
		}
	}
	if err != nil || len(entries) != 2100 {
		t.Fatalf("%d entries: %v", len(entries), err)
	}
	for i, entry := range entries {
		if want := fmt.Sprintf("%04d", i); entry.path != want {
			t.Fatalf("entry %d is %s", i, entry.path)
		}
	}
	if !slices.Contains(asked, "many/0999") || asked[0] != "" {
		t.Errorf("lists began behind %q", asked)
	}
}

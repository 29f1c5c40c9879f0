// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func repositoryFiles() map[string]string {
	return map[string]string{
		"README.md": "read me", "config.json": "{}", "empty": "", ".gitattributes": "*.bin filter=lfs",
		"weights/model-00001-of-00002.safetensors": random(200_000), "weights/model-00002-of-00002.safetensors": random(100_000),
		"odd/ä +%41 ?#.txt": "odd",
	}
}

func TestRepositoriesAreFetched(t *testing.T) {
	cases := map[string]struct {
		repository, kind, uri string
		change                func(*hubServer)
	}{
		"a dataset":                {"datasets/owner/name", "dataset", "hf://owner/name", nil},
		"a dataset, by its prefix": {"datasets/owner/name", "model", "hf://datasets/owner/name", nil},
		"a model":                  {"owner/name", "model", "hf://owner/name", nil},
		"a model, by its prefix":   {"owner/name", "dataset", "hf://models/owner/name", nil},
		"a model without an owner": {"gpt2", "model", "hf://gpt2", nil},
		"a commit":                 {"owner/name", "model", "hf://owner/name@" + firstSHA, nil},
		"a revision with a slash": {"owner/name", "model", "hf://owner/name@refs/pr/7", func(hub *hubServer) {
			hub.branches = map[string]string{"refs/pr/7": firstSHA, firstSHA: firstSHA}
		}},
		"a private model": {"owner/name", "model", "hf://owner/name", func(hub *hubServer) { hub.private = true }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := newHubServer(t, tc.repository, repositoryFiles())
			if tc.change != nil {
				tc.change(hub)
			}
			runner := newRunner(t, hub.environment())
			got := runner.run("fetch", "--kind", tc.kind, tc.uri, runner.directory)
			if got.code != 0 {
				t.Fatalf("exit code %d:\n%s", got.code, got.output)
			}
			if diff := cmp.Diff(repositoryFiles(), runner.files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if len(hub.leaked) > 0 {
				t.Errorf("the store was shown %q", hub.leaked)
			}
			if strings.Contains(got.output, "signatureOfTheTests") {
				t.Errorf("a signature is in the output:\n%s", got.output)
			}
			var found marker
			text, err := os.ReadFile(filepath.Join(runner.directory, markerFile))
			if err == nil {
				err = json.Unmarshal(text, &found)
			}
			if err != nil || found.Revision != firstSHA || found.Files != len(repositoryFiles()) {
				t.Errorf("marker %s: %v", text, err)
			}
		})
	}
}

func TestSecondRunFetchesHubChanges(t *testing.T) {
	hub := newHubServer(t, "datasets/owner/name", repositoryFiles())
	runner := newRunner(t, hub.environment())
	runner.fetched("hf://owner/name")
	hub.asked = nil
	runner.fetched("hf://owner/name")
	if len(hub.asked) > 0 {
		t.Errorf("asked for %q though everything was there", hub.asked)
	}
	const secondSHA = "2222222222222222222222222222222222222222"
	second := repositoryFiles()
	second["weights/model-00001-of-00002.safetensors"] = random(150_000)
	delete(second, "config.json")
	hub.branches, hub.commits[secondSHA] = map[string]string{"main": secondSHA, secondSHA: secondSHA}, second
	runner.fetched("hf://owner/name")
	want := []string{"hub weights/model-00001-of-00002.safetensors", "store weights/model-00001-of-00002.safetensors"}
	if !slices.Equal(hub.asked, want) {
		t.Errorf("asked for %q, want %q", hub.asked, want)
	}
	if diff := cmp.Diff(second, runner.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A branch that changes during the download must not mix two commits.
func TestBranchMovesDuringDownload(t *testing.T) {
	hub := newHubServer(t, "datasets/owner/name", repositoryFiles())
	const secondSHA = "2222222222222222222222222222222222222222"
	hub.commits[secondSHA] = map[string]string{"README.md": "another one"}
	hub.before = func(_ string, _ http.ResponseWriter, request *http.Request) bool {
		if strings.Contains(request.URL.Path, "/tree/") {
			hub.mutex.Lock()
			hub.branches = map[string]string{"main": secondSHA, firstSHA: firstSHA, secondSHA: secondSHA}
			hub.mutex.Unlock()
		}
		return false
	}
	runner := newRunner(t, hub.environment())
	runner.fetched("hf://owner/name")
	if diff := cmp.Diff(repositoryFiles(), runner.files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestHubErrors(t *testing.T) {
	const large = "weights/model-00001-of-00002.safetensors"
	// few accepts a request after it was refused a few times.
	few := func(host, part string, times int, refuse func(http.ResponseWriter)) func(string, http.ResponseWriter, *http.Request) bool {
		count := 0
		return func(at string, writer http.ResponseWriter, request *http.Request) bool {
			if at != host || !strings.Contains(request.URL.Path, part) || count == times {
				return false
			}
			count++
			refuse(writer)
			return true
		}
	}
	status := func(status int, header ...string) func(http.ResponseWriter) {
		return func(writer http.ResponseWriter) {
			for i := 0; i < len(header); i += 2 {
				writer.Header().Set(header[i], header[i+1])
			}
			writer.WriteHeader(status)
		}
	}
	cases := map[string]struct {
		before func(string, http.ResponseWriter, *http.Request) bool
		spoil  func(path string, try int, spoiled *spoiled)
		// asked are the expected requests to the store for the large file, if they matter.
		asked []string
	}{
		"too many requests":        {before: few("hub", "/tree/", 2, status(http.StatusTooManyRequests, "Retry-After", "0"))},
		"a limit":                  {before: few("hub", "/resolve/", 1, status(http.StatusTooManyRequests, "RateLimit", `"resolvers";r=0;t=1`))},
		"an error of the hub":      {before: few("hub", "/resolve/", 3, status(http.StatusInternalServerError))},
		"a gateway":                {before: few("hub", "/revision/", 2, status(http.StatusBadGateway))},
		"an address that ran out":  {before: few("store", "model-00001", 1, status(http.StatusForbidden)), asked: []string{"store " + large}},
		"a range that is too much": {before: few("store", "model-00001", 1, status(http.StatusRequestedRangeNotSatisfiable))},
		"a cut connection": {
			spoil: func(path string, try int, spoiled *spoiled) {
				if path == large && try == 0 {
					spoiled.cutAfter = 100_000
				}
			},
		},
		"silence": {
			spoil: func(path string, try int, spoiled *spoiled) {
				if path == large && try == 0 {
					spoiled.stallAfter = 100_000
				}
			},
		},
		"damage of a large file": {spoil: func(path string, try int, spoiled *spoiled) { spoiled.flip = path == large && try == 0 }, asked: []string{"store " + large, "store " + large}},
		"damage of a small file": {spoil: func(path string, try int, spoiled *spoiled) { spoiled.flip = path == "README.md" && try == 0 }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := newHubServer(t, "datasets/owner/name", repositoryFiles())
			hub.before, hub.spoil = tc.before, tc.spoil
			runner := newRunner(t, hub.environment())
			runner.timing.stall = 3 * time.Second
			runner.fetched("hf://owner/name")
			if diff := cmp.Diff(repositoryFiles(), runner.files()); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if len(hub.leaked) > 0 {
				t.Errorf("the store was shown %q", hub.leaked)
			}
			asked := slices.DeleteFunc(hub.asked, func(line string) bool { return !strings.HasPrefix(line, "store "+large) })
			if tc.asked != nil && !slices.Equal(asked, tc.asked) {
				t.Errorf("asked the store for %q, want %q", asked, tc.asked)
			}
		})
	}
}

// Every message about the hub.
func TestMessagesAboutTheHub(t *testing.T) {
	const (
		aToken  = "put HF_TOKEN into a Secret and name it in secretRef"
		corrupt = "it is corrupt at its source, was corrupted in transit, or is being written: restart the job, or upload the file again"
	)
	answer := func(host, part string, status int, code string) func(string, http.ResponseWriter, *http.Request) bool {
		return func(at string, writer http.ResponseWriter, request *http.Request) bool {
			if at != host || !strings.Contains(request.URL.Path, part) {
				return false
			}
			refuse(writer, status, code, "the words of the hub, with "+testToken)
			return true
		}
	}
	files := map[string]string{"large": random(200)}
	cases := map[string]struct {
		uri         string
		environment map[string]string
		change      func(*hubServer)
		before      func(string, http.ResponseWriter, *http.Request) bool
		want        string
	}{
		"not there":            {uri: "hf://owner/other", want: `the dataset repository owner/other does not exist at HUB, or it is private; check the name, give the token in HF_TOKEN of the Secret permission to read it, or write hf://models/owner/other if it is a model`},
		"not there for nobody": {environment: map[string]string{"HF_TOKEN": ""}, change: func(hub *hubServer) { hub.private = true }, want: `the dataset repository owner/name does not exist at HUB, or it is private; check the name, name a Secret with HF_TOKEN in secretRef, or write hf://models/owner/name if it is a model`},
		"no such model":        {uri: "hf://models/owner/name", want: `the model repository owner/name does not exist at HUB, or it is private; check the name, give the token in HF_TOKEN of the Secret permission to read it, or write hf://datasets/owner/name if it is a dataset`},
		"no such revision":     {uri: "hf://owner/name@v9", want: `the dataset repository owner/name at HUB has no revision "v9"; check the revision after the @ in storageUri`},
		"gated":                {change: func(hub *hubServer) { hub.gated = true }, want: `the dataset repository owner/name at HUB is gated; request access on its page with the account of the token in HF_TOKEN of the Secret`},
		"gated for nobody":     {environment: map[string]string{"HF_TOKEN": ""}, change: func(hub *hubServer) { hub.gated = true }, want: `the dataset repository owner/name at HUB is gated; request access on its page, then put a token of that account as HF_TOKEN into a Secret and name it in secretRef`},
		"a wrong token":        {environment: map[string]string{"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "hf_another"}, want: `HUB does not accept the token; renew HF_TOKEN in the Secret`},
		"a strange token":      {environment: map[string]string{"HF_TOKEN": "two words"}, want: `HF_TOKEN in the Secret is not a valid token: it has spaces, line feeds or other invalid characters`},
		"denied":               {before: answer("hub", "/tree/", http.StatusForbidden, ""), want: `access to the dataset repository owner/name at HUB is denied; give the token in HF_TOKEN of the Secret permission to read it`},
		"denied for nobody":    {environment: map[string]string{"HF_TOKEN": ""}, before: answer("hub", "/resolve/", http.StatusForbidden, ""), want: `access to the file "large" of the dataset repository owner/name at HUB is denied without a token; ` + aToken},
		"too many":             {before: answer("hub", "/api/", http.StatusTooManyRequests, ""), want: `HUB limits the requests from this cluster; restart the job later`},
		"too many of nobody":   {environment: map[string]string{"HF_TOKEN": ""}, before: answer("hub", "/api/", http.StatusTooManyRequests, ""), want: `HUB limits the requests from this cluster; a token raises the limit: ` + aToken},
		"broken":               {before: answer("hub", "/resolve/", http.StatusInternalServerError, ""), want: `HUB responds with 500 Internal Server Error for the file "large" of the dataset repository owner/name at HUB; restart the job later`},
		"strange":              {before: answer("hub", "/tree/", http.StatusTeapot, ""), want: `HUB responds with 418 I'm a teapot for the dataset repository owner/name at HUB; check storageUri, and HF_ENDPOINT in the Secret`},
		"gone":                 {before: answer("hub", "/resolve/", http.StatusNotFound, "EntryNotFound"), want: `the file "large" of the dataset repository owner/name at HUB no longer exists; restart the job`},
		"the store is broken":  {before: answer("store", "", http.StatusServiceUnavailable, ""), want: `STORE, which stores the file "large" of the dataset repository owner/name at HUB, responds with 503 Service Unavailable; restart the job later`},
		"the store is away":    {change: func(hub *hubServer) { hub.store.Close() }, want: `STORE refuses connections; check HF_ENDPOINT in the Secret, and that no NetworkPolicy, firewall or missing proxy blocks the namespace`},
		"empty":                {change: func(hub *hubServer) { hub.commits[firstSHA] = nil }, want: `the dataset repository owner/name at HUB has no files; check the name and the revision in storageUri`},
		"a login page": {before: func(_ string, writer http.ResponseWriter, _ *http.Request) bool {
			_, _ = writer.Write([]byte("<html>"))
			return true
		}, want: `HUB does not respond like a Hugging Face hub; check HF_ENDPOINT in the Secret, and whether a proxy or login page answers instead`},
		"no commit": {before: func(_ string, writer http.ResponseWriter, _ *http.Request) bool {
			_, _ = writer.Write([]byte(`{"sha":"../x"}`))
			return true
		}, want: `HUB does not respond like a Hugging Face hub; check HF_ENDPOINT in the Secret, and whether a proxy or login page answers instead`},
		"a way out": {change: func(hub *hubServer) { hub.commits[firstSHA] = map[string]string{"../x": "x"} }, want: `the file "../x" cannot be stored: its path has .. segments; rename or remove it in the repository`},
		"a pointer for the file": {before: func(at string, writer http.ResponseWriter, _ *http.Request) bool {
			if at == "store" {
				_, _ = writer.Write([]byte((pointerOf(files["large"]) + strings.Repeat(" ", 200))[:200]))
			}
			return at == "store"
		}, want: `the file "large" has the wrong SHA-256: expected df27b533c56f4809a92b70941af0fd34e0663a3c184dbde80ffc025829892b6c; ` + corrupt},
		"more than promised": {before: func(at string, writer http.ResponseWriter, _ *http.Request) bool {
			if at == "store" {
				_, _ = writer.Write([]byte(random(300)))
			}
			return at == "store"
		}, want: `the file "large" is longer than the announced 200 B; ` + corrupt},
		"a strange address": {environment: map[string]string{hubEndpointVariable: "https://user:hunter2@hub"}, want: `HF_ENDPOINT in the Secret must be the URL of a Hugging Face hub, such as https://huggingface.co`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			hub := newHubServer(t, "datasets/owner/name", maps.Clone(files))
			hub.before = tc.before
			if tc.change != nil {
				tc.change(hub)
			}
			environment := hub.environment()
			maps.Copy(environment, tc.environment)
			runner := newRunner(t, environment)
			runner.timing.maxFirstResponse, runner.timing.maxIdle = 50*time.Millisecond, 50*time.Millisecond
			uri := tc.uri
			if uri == "" {
				uri = "hf://owner/name"
			}
			runner.refused(uri, strings.NewReplacer("HUB", hub.host(), "STORE", strings.TrimPrefix(hub.store.URL, "http://")).Replace(tc.want))
		})
	}
}

// A mirror may have a path prefix.
func TestMirrorWithPathPrefix(t *testing.T) {
	hub := newHubServer(t, "datasets/owner/name", map[string]string{"README.md": "read me"})
	address, err := url.Parse(hub.api.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(address)
	proxy.ModifyResponse = func(response *http.Response) error {
		if location := response.Header.Get("Location"); strings.HasPrefix(location, "/") {
			response.Header.Set("Location", "/mirror/hub"+location)
		}
		return nil
	}
	mirror := httptest.NewServer(http.StripPrefix("/mirror/hub", proxy))
	t.Cleanup(mirror.Close)
	runner := newRunner(t, map[string]string{hubEndpointVariable: mirror.URL + "/mirror/hub/", "HF_TOKEN": testToken})
	runner.fetched("hf://owner/name")
	if runner.files()["README.md"] != "read me" {
		t.Errorf("files: %v", runner.files())
	}
}

// An interrupted list continues with the missing page.
func TestHubPagesContinueAfterError(t *testing.T) {
	server := newHubServer(t, "datasets/owner/name", repositoryFiles())
	var asked []string
	server.before = func(_ string, writer http.ResponseWriter, request *http.Request) bool {
		asked = append(asked, request.URL.RawQuery)
		if len(asked) == 3 {
			_, _ = writer.Write([]byte("["))
			_ = http.NewResponseController(writer).Flush()
			<-request.Context().Done()
			return true
		}
		return false
	}
	environment := server.environment()
	hub, err := newHub(location{scheme: schemeHub, container: "owner/name", repositoryKind: Dataset, revision: "main"}, func(name string) string { return environment[name] }, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, err = hub.list(t.Context())
	if failure, explained := asFailure(err); !explained || !failure.temporary {
		t.Fatalf("the page that never came: %v", err)
	}
	entries, err := hub.list(t.Context())
	if err != nil || len(entries) != len(repositoryFiles()) {
		t.Errorf("%d entries: %v", len(entries), err)
	}
	const first = "recursive=true"
	if want := []string{"", first, first + "&cursor=3", first + "&cursor=3", first + "&cursor=6"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}

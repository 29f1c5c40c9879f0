// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const testToken = "hf_tokenOfTheTests"

// hubServer is a fake of the Hugging Face hub: its API and resolver on one host, the store
// of large files on another, to which it redirects with signed URLs. It has pages, moving
// branches and errors like the real one.
type hubServer struct {
	api, store *httptest.Server
	t          *testing.T
	// repository is [datasets/]owner/name.
	repository string
	// commits by revision, and the files of each commit.
	branches map[string]string
	commits  map[string]map[string]string
	// private repositories are hidden from requests without the token; gated ones only
	// refuse their files.
	private, gated bool

	mutex sync.Mutex
	// asked are the requests for files, by host: hub or store.
	asked []string
	// leaked are requests to the store that had the token or a referer.
	leaked []string
	// before may respond to a request itself; it then returns true.
	before func(host string, writer http.ResponseWriter, request *http.Request) bool
	spoil  func(path string, try int, spoiled *spoiled)
	tries  map[string]int
}

const (
	// largeFile is the minimum size of a file in the store.
	largeFile = 100
	pageSize  = 3
	firstSHA  = "1111111111111111111111111111111111111111"
)

func newHubServer(t *testing.T, repository string, files map[string]string) *hubServer {
	hub := &hubServer{
		t: t, repository: repository, branches: map[string]string{"main": firstSHA, firstSHA: firstSHA},
		commits: map[string]map[string]string{firstSHA: files}, tries: map[string]int{},
	}
	hub.api = httptest.NewServer(hub.serving("hub", hub.serveHub))
	hub.store = httptest.NewServer(hub.serving("store", hub.serveStore))
	t.Cleanup(hub.api.Close)
	t.Cleanup(hub.store.Close)
	return hub
}

func (h *hubServer) environment() map[string]string {
	return map[string]string{hubEndpointVariable: h.api.URL, "HF_TOKEN": testToken + "\n"}
}

func (h *hubServer) host() string { return strings.TrimPrefix(h.api.URL, "http://") }

func (h *hubServer) serving(host string, next http.HandlerFunc) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		h.mutex.Lock()
		before := h.before
		if authorization := request.Header.Get("Authorization"); host == "store" && (authorization != "" || request.Header.Get("Referer") != "") {
			h.leaked = append(h.leaked, authorization+request.Header.Get("Referer"))
		}
		h.mutex.Unlock()
		if before == nil || !before(host, writer, request) {
			next(writer, request)
		}
	}
}

func refuse(writer http.ResponseWriter, status int, code, message string) {
	writer.Header().Set("X-Error-Code", code)
	writer.Header().Set("X-Error-Message", message)
	writer.WriteHeader(status)
	fmt.Fprintf(writer, `{"error":%q}`, message)
}

func (h *hubServer) serveHub(writer http.ResponseWriter, request *http.Request) {
	known := request.Header.Get("Authorization") == "Bearer "+testToken
	if request.Header.Get("Authorization") != "" && !known {
		refuse(writer, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
		return
	}
	kind, name := "models", h.repository
	if rest, isDataset := strings.CutPrefix(name, "datasets/"); isDataset {
		kind, name = "datasets", rest
	}
	path := request.URL.EscapedPath()
	if rest, isAPI := strings.CutPrefix(path, "/api/"+kind+"/"+name+"/"); isAPI && (known || !h.private) {
		h.serveAPI(writer, request, rest)
		return
	}
	if rest, isFile := strings.CutPrefix(path, "/"+h.repository+"/resolve/"); isFile && (known || !h.private) {
		h.serveFile(writer, request, rest, known)
		return
	}
	// A repository that does not exist, or is private.
	status := http.StatusUnauthorized
	if known {
		status = http.StatusNotFound
	}
	refuse(writer, status, "RepoNotFound", "Repository not found")
}

func (h *hubServer) serveAPI(writer http.ResponseWriter, request *http.Request, rest string) {
	what, revision, _ := strings.Cut(rest, "/")
	revision, err := url.PathUnescape(revision)
	sha, found := h.branches[revision]
	if err != nil || !found {
		refuse(writer, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	if what == "revision" {
		fmt.Fprintf(writer, `{"_id":"1","id":%q,"sha":%q,"siblings":[]}`, h.repository, sha)
		return
	}
	entries := h.tree(sha)
	begin := 0
	if cursor := request.URL.Query().Get("cursor"); cursor != "" {
		_, _ = fmt.Sscan(cursor, &begin)
	}
	end := min(begin+pageSize, len(entries))
	if end < len(entries) {
		next := h.api.URL + request.URL.EscapedPath() + fmt.Sprintf("?recursive=true&cursor=%d", end)
		writer.Header().Set("Link", "<"+next+`>; rel="next"`)
	}
	_ = json.NewEncoder(writer).Encode(entries[begin:end])
}

// tree returns the API's list of files and directories of a commit.
func (h *hubServer) tree(sha string) (entries []map[string]any) {
	var paths []string
	directories := map[string]bool{}
	for path := range h.commits[sha] {
		paths = append(paths, path)
		if at := strings.LastIndex(path, "/"); at > 0 {
			directories[path[:at]] = true
		}
	}
	slices.Sort(paths)
	for directory := range directories {
		entries = append(entries, map[string]any{"type": "directory", "oid": firstSHA, "size": 0, "path": directory})
	}
	for _, path := range paths {
		content := h.commits[sha][path]
		if len(content) < largeFile {
			sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(content), content))
			entries = append(entries, map[string]any{"type": "file", "oid": hex.EncodeToString(sum[:]), "size": len(content), "path": path})
			continue
		}
		sum := sha256.Sum256([]byte(content))
		pointer := sha1.Sum([]byte(pointerOf(content)))
		entries = append(entries, map[string]any{
			"type": "file", "oid": hex.EncodeToString(pointer[:]), "size": len(content), "path": path,
			"lfs": map[string]any{"oid": hex.EncodeToString(sum[:]), "size": len(content), "pointerSize": len(pointerOf(content))},
		})
	}
	return entries
}

// pointerOf returns git's pointer to a file in the store.
func pointerOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", hex.EncodeToString(sum[:]), len(content))
}

func (h *hubServer) serveFile(writer http.ResponseWriter, request *http.Request, rest string, known bool) {
	sha, escaped, _ := strings.Cut(rest, "/")
	path, err := url.PathUnescape(escaped)
	content, found := h.commits[sha][path]
	h.note("hub", path, request)
	switch {
	case h.gated && !known:
		refuse(writer, http.StatusUnauthorized, "GatedRepo", "Access to this repository is restricted. You must have access to it and be authenticated to access it.")
	case h.gated:
		refuse(writer, http.StatusForbidden, "GatedRepo", "Access to this repository is restricted and you are not in the authorized list.")
	case err != nil || !found:
		refuse(writer, http.StatusNotFound, "EntryNotFound", "Entry not found")
	case len(content) >= largeFile:
		writer.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
		writer.Header().Set("X-Repo-Commit", sha)
		location := h.store.URL + "/" + sha + "/" + escaped + "?X-Amz-Signature=signatureOfTheTests"
		http.Redirect(writer, request, location, http.StatusFound)
	case !strings.Contains(request.URL.RawQuery, "cached"):
		// Small files are redirected too, on the same host.
		http.Redirect(writer, request, request.URL.EscapedPath()+"?cached", http.StatusTemporaryRedirect)
	default:
		http.ServeContent(h.answer(writer, request, path), request, "", time.Time{}, strings.NewReader(content))
	}
}

func (h *hubServer) serveStore(writer http.ResponseWriter, request *http.Request) {
	sha, path, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	h.note("store", path, request)
	if request.URL.Query().Get("X-Amz-Signature") != "signatureOfTheTests" {
		http.Error(writer, "signature", http.StatusForbidden)
		return
	}
	http.ServeContent(h.answer(writer, request, path), request, "", time.Time{}, strings.NewReader(h.commits[sha][path]))
}

func (h *hubServer) answer(writer http.ResponseWriter, request *http.Request, path string) http.ResponseWriter {
	answer := &spoiled{ResponseWriter: writer, cutAfter: -1, stallAfter: -1, done: request.Context().Done()}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.spoil != nil {
		h.spoil(path, h.tries[path], answer)
	}
	h.tries[path]++
	return answer
}

func (h *hubServer) note(host, path string, request *http.Request) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if request.URL.RawQuery != "cached" {
		h.asked = append(h.asked, strings.TrimSpace(host+" "+path+" "+request.Header.Get("Range")))
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package page serves the dashboard: static files, and an index that is the same for every
// page. The page itself calls the REST API with the user's token.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Policy is the Content-Security-Policy of the page: nothing from other origins, and no
// inline scripts or styles. data: images are icons in PatternFly's style sheets.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// routes are the first segments of the page's own addresses. No path of the API begins
// with one of them.
var routes = []string{"", "jobs", "create", "history", "runtimes", "cluster", "sign-in"}

// assets is the folder of files whose names contain a hash of their content.
const assets = "assets"

// html is the content type of the index.
const html = "text/html; charset=utf-8"

// sessionPath exchanges a one-time code for a token.
const sessionPath = "/session"

// Page is the handler of the dashboard.
type Page struct {
	index *file
	files map[string]*file
	codes *Codes
}

type file struct {
	content     []byte
	contentType string
	etag        string
	// compressed is the content for browsers that accept gzip, made for the first of them; nil
	// if it is not smaller.
	compressed func() []byte
}

func newFile(content []byte, contentType string) *file {
	sum := sha256.Sum256(content)
	return &file{
		content: content, contentType: contentType, etag: hex.EncodeToString(sum[:8]),
		compressed: sync.OnceValue(func() []byte { return compressed(content) }),
	}
}

func compressed(content []byte) []byte {
	var result bytes.Buffer
	writer := gzip.NewWriter(&result)
	_, _ = writer.Write(content) // a buffer has no errors
	_ = writer.Close()
	if result.Len() >= len(content) {
		return nil
	}
	return result.Bytes()
}

// New reads the files of the page; nil if it was not built. Codes may be nil: then users
// sign in with a token.
func New(files fs.FS, codes *Codes) (*Page, error) {
	p := &Page{index: newFile([]byte(notBuilt), html), files: map[string]*file{}, codes: codes}
	if files == nil {
		return p, nil
	}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if name == "index.html" {
			p.index = newFile(content, html)
			return nil
		}
		p.files["/"+name] = newFile(content, contentType(name))
		return nil
	})
	return p, err
}

// contentType does not depend on the machine's table of types.
func contentType(name string) string {
	switch extension := path.Ext(name); extension {
	case ".woff2":
		return "font/woff2"
	case ".js":
		return "text/javascript; charset=utf-8"
	default:
		return mime.TypeByExtension(extension)
	}
}

// Handles tells whether a request is for the page, and not for the API.
func (p *Page) Handles(request *http.Request) bool {
	if request.Method == http.MethodPost {
		return p.codes != nil && request.URL.Path == sessionPath
	}
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		return false
	}
	if _, is := p.files[request.URL.Path]; is {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(request.URL.Path, "/"), "/")
	return first == assets || slices.Contains(routes, first)
}

// ServeHTTP serves a file, or the index for the address of a page.
func (p *Page) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	header := writer.Header()
	header.Set("Content-Security-Policy", Policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if request.Method == http.MethodPost {
		p.codes.exchange(writer, request)
		return
	}
	if found, is := p.files[request.URL.Path]; is {
		if strings.HasPrefix(request.URL.Path, "/"+assets+"/") {
			header.Set("Cache-Control", "public, max-age=31536000, immutable")
		} else {
			header.Set("Cache-Control", "no-cache")
		}
		serve(writer, request, found)
		return
	}
	if strings.HasPrefix(request.URL.Path, "/"+assets+"/") {
		// A page of an older version asks for its files: it must be loaded again.
		http.NotFound(writer, request)
		return
	}
	header.Set("Cache-Control", "no-cache")
	serve(writer, request, p.index)
}

func serve(writer http.ResponseWriter, request *http.Request, found *file) {
	content, etag, header := found.content, found.etag, writer.Header()
	header.Set("Content-Type", found.contentType)
	header.Add("Vary", "Accept-Encoding")
	if acceptsGzip(request) {
		if smaller := found.compressed(); smaller != nil {
			content, etag = smaller, etag+"-gzip"
			header.Set("Content-Encoding", "gzip")
		}
	}
	header.Set("ETag", `"`+etag+`"`)
	http.ServeContent(writer, request, "", time.Time{}, bytes.NewReader(content))
}

// acceptsGzip tells whether Accept-Encoding has gzip, and not with q=0, which forbids it.
func acceptsGzip(request *http.Request) bool {
	for encoding := range strings.SplitSeq(strings.Join(request.Header.Values("Accept-Encoding"), ","), ",") {
		name, quality, _ := strings.Cut(encoding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, value, isGiven := strings.Cut(quality, "=")
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return !isGiven || err == nil && number > 0
		}
	}
	return false
}

// notBuilt is the index of a server that was built without the page.
const notBuilt = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Trireme</title></head>
<body>
<main>
<h1>Trireme</h1>
<p>This server was built without the dashboard. To build it, run <code>make web</code> in the source code, and build the server again.</p>
<p>The API is available: see <a href="/openapi.json">openapi.json</a>.</p>
</main>
</body>
</html>
`

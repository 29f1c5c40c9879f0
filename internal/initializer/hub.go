// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

const (
	hubEndpointVariable = "HF_ENDPOINT"
	hubBundleVariable   = "REQUESTS_CA_BUNDLE"
	hubEndpoint         = "https://huggingface.co"
	// maxResponse limits one response of the API: a page has at most 1,000 files.
	maxResponse = 32 << 20
	maxPages    = 100_000
)

// hub has the files of one repository of the Hugging Face hub, or of a compatible server.
type hub struct {
	location
	endpoint *url.URL
	client   *http.Client
	hasToken bool
	// commit is the resolved revision: all files are of the same commit even if the branch
	// changes.
	commit string
	// files of the pages that were listed, so that a retry continues with the next page.
	files []entry
	next  string
	pages int
}

func newHub(at location, environment Environment, stall time.Duration) (*hub, error) {
	address, _ := environment.value(hubEndpointVariable)
	if address == "" {
		address = hubEndpoint
	}
	endpoint, err := url.Parse(strings.TrimSuffix(address, "/"))
	if err != nil || endpoint.Host == "" || endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil, misconfigured("%s in the Secret must be the URL of a Hugging Face hub, such as %s", hubEndpointVariable, hubEndpoint)
	}
	transport, err := newTransport(environment, hubBundleVariable, stall)
	if err != nil {
		return nil, err
	}
	token, name := environment.value(tokenVariables...)
	if strings.ContainsFunc(token, func(char rune) bool { return char <= ' ' || char >= 0x7f }) {
		return nil, misconfigured("%s in the Secret is not a valid token: it has spaces, line feeds or other invalid characters", name)
	}
	return &hub{
		location: at,
		endpoint: endpoint,
		client:   &http.Client{Transport: &authorized{endpoint: endpoint, token: token, next: transport}},
		hasToken: token != "",
	}, nil
}

// authorized sends the token only to the hub. The hub redirects downloads to other hosts;
// net/http would send the token to subdomains of the hub as well.
type authorized struct {
	endpoint *url.URL
	token    string
	next     http.RoundTripper
}

func (a *authorized) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("User-Agent", "trireme-initializer/1")
	request.Header.Del("Referer")
	if a.token != "" && request.URL.Scheme == a.endpoint.Scheme && request.URL.Host == a.endpoint.Host {
		request.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.next.RoundTrip(request)
}

func (h *hub) revision() string { return h.commit }

var commitID = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

func (h *hub) listed() int64 { return int64(len(h.files)) }

func (h *hub) list(ctx context.Context) ([]entry, error) {
	if h.commit == "" {
		var repository struct {
			SHA string `json:"sha"`
		}
		if _, err := h.get(ctx, h.api("revision", h.location.revision), &repository); err != nil {
			return nil, err
		}
		if !commitID.MatchString(repository.SHA) {
			return nil, h.notAHub()
		}
		h.commit = repository.SHA
		h.next = h.api("tree", h.commit) + "?recursive=true"
	}
	for h.next != "" {
		if err := h.listPage(ctx); err != nil {
			return nil, err
		}
	}
	if len(h.files) == 0 {
		return nil, &Failure{What: fmt.Sprintf("%s has no files", h.describe()), Advice: "check the name and the revision in storageUri"}
	}
	return h.files, nil
}

func (h *hub) listPage(ctx context.Context) error {
	var files []hubFile
	header, err := h.get(ctx, h.next, &files)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.Type != "file" || isOwn(file.Path) {
			continue
		}
		e, err := file.entry()
		if err != nil {
			return err
		}
		h.files = append(h.files, e)
	}
	// A list with this many pages never ends.
	if h.pages++; h.pages > maxPages {
		return h.notAHub()
	}
	h.next = nextPage(header, h.next)
	return nil
}

// hubFile is a file in the hub's list.
type hubFile struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"`
	// LFS is set for files that git only has a pointer to.
	LFS *struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"lfs"`
}

func (h *hubFile) entry() (entry, error) {
	if err := checkPath(h.Path); err != nil {
		return entry{}, &Failure{What: fmt.Sprintf("the file %q cannot be stored: %v", h.Path, err), Advice: "rename or remove it in the repository"}
	}
	if h.Size < 0 || h.LFS != nil && h.LFS.Size < 0 {
		return entry{}, &Failure{What: fmt.Sprintf("the file %q has a negative size", h.Path), Advice: fmt.Sprintf("check %s in the Secret", hubEndpointVariable)}
	}
	if lfs := h.LFS; lfs != nil {
		return entry{path: h.Path, size: lfs.Size, version: lfs.OID, checksum: checksum{algorithm: sha256Sum, sum: strings.ToLower(lfs.OID)}}, nil
	}
	return entry{path: h.Path, size: h.Size, version: h.OID, checksum: checksum{algorithm: gitBlob, sum: h.OID}}, nil
}

func (h *hub) open(ctx context.Context, entry entry, offset int64) (*content, error) {
	var path strings.Builder
	if h.repositoryKind == Dataset {
		path.WriteString("/datasets")
	}
	path.WriteString("/" + h.container + "/resolve/" + h.commit)
	for part := range strings.SplitSeq(entry.path, "/") {
		path.WriteString("/" + url.PathEscape(part))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, h.endpoint.String()+path.String(), nil)
	if err != nil {
		return nil, err
	}
	if offset > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	response, err := h.client.Do(request)
	if err != nil {
		return nil, h.unreachable(ctx, err)
	}
	switch response.StatusCode {
	case http.StatusOK:
		return &content{ReadCloser: response.Body, checksum: entry.checksum}, nil
	case http.StatusPartialContent:
		return &content{ReadCloser: response.Body, offset: startOffset(response.Header, offset), checksum: entry.checksum}, nil
	}
	defer response.Body.Close()
	return nil, h.explain(response, entry.path)
}

func (h *hub) interrupted(ctx context.Context, _ entry, err error) error {
	return h.unreachable(ctx, err)
}

// api returns a URL of the repository's API.
func (h *hub) api(what, revision string) string {
	return fmt.Sprintf("%s/api/%ss/%s/%s/%s", h.endpoint, h.repositoryKind, h.container, what, url.PathEscape(revision))
}

func (h *hub) get(ctx context.Context, address string, into any) (http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, h.notAHub()
	}
	response, err := h.client.Do(request)
	if err != nil {
		return nil, h.unreachable(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, h.explain(response, "")
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, h.unreachable(ctx, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return nil, h.notAHub()
	}
	return response.Header, nil
}

var nextLink = regexp.MustCompile(`<([^>]+)>\s*;\s*rel="next"`)

// nextPage returns the URL of the next page of a list, if there is one.
func nextPage(header http.Header, current string) string {
	found := nextLink.FindStringSubmatch(strings.Join(header.Values("Link"), ","))
	if found == nil {
		return ""
	}
	base, err := url.Parse(current)
	if err != nil {
		return ""
	}
	next, err := base.Parse(found[1])
	if err != nil {
		return ""
	}
	return next.String()
}

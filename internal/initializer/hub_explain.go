// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// describe returns a description of the repository.
func (h *hub) describe() string {
	return fmt.Sprintf("the %s repository %s at %s", h.repositoryKind, h.container, h.endpoint.Host)
}

func (h *hub) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return unreachable(err, h.endpoint.Host, hubEndpointVariable, hubBundleVariable)
}

func (h *hub) notAHub() error {
	return &Failure{
		What:   fmt.Sprintf("%s does not respond like a Hugging Face hub", h.endpoint.Host),
		Advice: fmt.Sprintf("check %s in the Secret, and whether a proxy or login page answers instead", hubEndpointVariable),
	}
}

// explain explains an error response of the hub, or of a server that it redirected to,
// about a file or, without one, about the repository.
func (h *hub) explain(response *http.Response, file string) error {
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // So that the connection can be used again.
	what := h.describe()
	if file != "" {
		what = fmt.Sprintf("the file %q of %s", file, what)
	}
	token := fmt.Sprintf("put %s into a Secret and name it in secretRef", tokenVariables[0])
	switch response.Header.Get("X-Error-Code") {
	case "GatedRepo":
		return h.gated()
	case "RevisionNotFound":
		return &Failure{What: fmt.Sprintf("%s has no revision %q", h.describe(), h.location.revision), Advice: "check the revision after the @ in storageUri"}
	case "EntryNotFound":
		return &Failure{What: what + " no longer exists", Advice: "restart the job"}
	case "RepoNotFound":
		return h.notFound()
	}
	switch code := response.StatusCode; {
	case response.Request.URL.Host != h.endpoint.Host:
		return h.redirectFailure(response, what)
	case code == http.StatusUnauthorized && h.hasToken:
		return &Failure{What: fmt.Sprintf("%s does not accept the token", h.endpoint.Host), Advice: fmt.Sprintf("renew %s in the Secret", tokenVariables[0])}
	case code == http.StatusUnauthorized, code == http.StatusNotFound && file == "":
		return h.notFound()
	case code == http.StatusForbidden && h.hasToken:
		return &Failure{What: fmt.Sprintf("access to %s is denied", what), Advice: fmt.Sprintf("give the token in %s of the Secret permission to read it", tokenVariables[0])}
	case code == http.StatusForbidden:
		return &Failure{What: fmt.Sprintf("access to %s is denied without a token", what), Advice: token}
	case code == http.StatusTooManyRequests:
		failure := &Failure{What: fmt.Sprintf("%s limits the requests from this cluster", h.endpoint.Host), Advice: "restart the job later", temporary: true, after: retryAfter(response.Header, time.Now())}
		if !h.hasToken {
			failure.Advice = "a token raises the limit: " + token
		}
		return failure
	}
	return h.otherFailure(response, what)
}

func (h *hub) gated() error {
	failure := &Failure{What: fmt.Sprintf("%s is gated", h.describe())}
	if h.hasToken {
		failure.Advice = fmt.Sprintf("request access on its page with the account of the token in %s of the Secret", tokenVariables[0])
	} else {
		failure.Advice = fmt.Sprintf("request access on its page, then put a token of that account as %s into a Secret and name it in secretRef", tokenVariables[0])
	}
	return failure
}

// notFound: the hub does not distinguish missing repositories from private ones.
func (h *hub) notFound() error {
	other := Model
	if h.repositoryKind == Model {
		other = Dataset
	}
	failure := &Failure{What: fmt.Sprintf("the %s repository %s does not exist at %s, or it is private", h.repositoryKind, h.container, h.endpoint.Host)}
	if h.hasToken {
		failure.Advice = fmt.Sprintf("check the name, give the token in %s of the Secret permission to read it", tokenVariables[0])
	} else {
		failure.Advice = fmt.Sprintf("check the name, name a Secret with %s in secretRef", tokenVariables[0])
	}
	failure.Advice += fmt.Sprintf(", or write hf://%ss/%s if it is a %s", other, h.container, other)
	return failure
}

// redirectFailure is an error of a server that the hub redirected to. Most likely the
// signed URL has expired: the hub creates a new one.
func (h *hub) redirectFailure(response *http.Response, what string) error {
	return &Failure{
		What:      fmt.Sprintf("%s, which stores %s, responds with %s", response.Request.URL.Host, what, status(response)),
		Advice:    "restart the job later",
		temporary: true,
		corrupt:   response.StatusCode == http.StatusRequestedRangeNotSatisfiable,
		after:     retryAfter(response.Header, time.Now()),
	}
}

func (h *hub) otherFailure(response *http.Response, what string) error {
	failure := &Failure{
		What:      fmt.Sprintf("%s responds with %s for %s", h.endpoint.Host, status(response), what),
		Advice:    fmt.Sprintf("check storageUri, and %s in the Secret", hubEndpointVariable),
		temporary: isTemporaryStatus(response.StatusCode),
		after:     retryAfter(response.Header, time.Now()),
	}
	if response.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		failure.temporary, failure.corrupt = true, true
	}
	if failure.temporary {
		failure.Advice = "restart the job later"
	}
	return failure
}

// status returns the standard text of a status code: servers may send any text.
func status(response *http.Response) string {
	return fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode))
}

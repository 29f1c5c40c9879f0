// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/review"
)

const (
	// allowedFor is how long a permission is remembered.
	allowedFor = time.Minute
	// reviewsPerSecond limits the reviews for unknown tokens: only Trireme's server calls.
	reviewsPerSecond = 20
	maxTokens        = 64
	// maxRequests is how many requests are handled at a time: each may have a log in memory.
	maxRequests = 8
)

// handler serves the records to Trireme's server, which has checked what its caller may
// read.
type handler struct {
	api   kubernetes.Interface
	clock clock.PassiveClock
	log   *slog.Logger
	// catalog is nil until the store is open.
	catalog *atomic.Pointer[Catalog]
	allowed *lru.Cache
	reviews *rate.Limiter
	slots   chan struct{}
}

func newHandler(api kubernetes.Interface, catalog *atomic.Pointer[Catalog], clock clock.PassiveClock, log *slog.Logger) http.Handler {
	h := &handler{
		api: api, clock: clock, log: log, catalog: catalog, allowed: lru.New(maxTokens), reviews: rate.NewLimiter(reviewsPerSecond, reviewsPerSecond), slots: make(chan struct{}, maxRequests),
	}
	routes := http.NewServeMux()
	for _, kind := range []job.Kind{job.KindTrainJob, job.KindMPIJob} {
		all := history.APIPath(kind, "{namespace}")
		one := history.APIPath(kind, "{namespace}", "{job}")
		routes.Handle("GET "+all, h.serve(kind, h.list))
		routes.Handle("GET "+one, h.serve(kind, h.ofRecord(h.show)))
		routes.Handle("GET "+one+"/logs", h.serve(kind, h.ofRecord(h.logs)))
		routes.Handle("DELETE "+one, h.serve(kind, h.ofRecord(h.delete)))
	}
	return routes
}

// query is an authorized request.
type query struct {
	*http.Request
	catalog *Catalog
	// records are those of the namespace that has the requested name now.
	records []history.Summary
	// record is the one that the path names.
	record history.Summary
}

// serve authenticates and authorizes a request, and finds the records of its namespace.
func (h *handler) serve(kind job.Kind, answer func(http.ResponseWriter, *query)) http.Handler {
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
		case <-request.Context().Done():
			return
		}
		if !h.authorize(writer, request) {
			return
		}
		catalog := h.catalog.Load()
		if catalog == nil {
			refuse(writer, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the store of the history cannot be opened; the log of Deployment trireme-history has the cause")
			return
		}
		uid, err := h.namespaceUID(request.Context(), request.PathValue("namespace"))
		if err != nil {
			h.fail(writer, err)
			return
		}
		answer(writer, &query{Request: request, catalog: catalog, records: catalog.List(uid, kind)})
	})
}

// namespaceUID returns the UID that a namespace has now; empty if it does not exist.
func (h *handler) namespaceUID(ctx context.Context, name string) (types.UID, error) {
	namespace, err := h.api.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read namespace %s: %w", name, err)
	}
	return namespace.UID, nil
}

// ofRecord finds the record that the path names.
func (h *handler) ofRecord(answer func(http.ResponseWriter, *query)) func(http.ResponseWriter, *query) {
	return func(writer http.ResponseWriter, q *query) {
		record, found := history.Find(q.records, q.PathValue("job"))
		if !found {
			refuse(writer, http.StatusNotFound, metav1.StatusReasonNotFound, "there is no such record")
			return
		}
		q.record = record
		answer(writer, q)
	}
}

func (h *handler) list(writer http.ResponseWriter, q *query) {
	limit, err := strconv.Atoi(q.URL.Query().Get("limit"))
	if err != nil || limit < 1 || limit > history.MaxList {
		limit = history.MaxList
	}
	newest := history.NewestFirst(q.records)
	respond(writer, http.StatusOK, history.RecordList{Items: append([]history.Summary{}, newest[:min(limit, len(newest))]...), Total: len(newest)})
}

func (h *handler) show(writer http.ResponseWriter, q *query) {
	record, err := q.catalog.Record(q.Context(), q.record.Key)
	if err != nil {
		h.failRecord(writer, err)
		return
	}
	respond(writer, http.StatusOK, record)
}

// logs sends the lines as JSON, one on each line.
func (h *handler) logs(writer http.ResponseWriter, q *query) {
	lines, err := q.catalog.Log(q.Context(), q.record.Key)
	if err != nil {
		h.failRecord(writer, err)
		return
	}
	rank, err := strconv.Atoi(q.URL.Query().Get("rank"))
	oneRank := err == nil
	writer.Header().Set("Content-Type", "application/x-ndjson")
	encoder := json.NewEncoder(writer)
	for line, err := range lines {
		if err != nil {
			// The client must not take a part for the whole.
			h.log.Error("send the log of a record", "error", err)
			panic(http.ErrAbortHandler)
		}
		if oneRank && (line.Rank == nil || *line.Rank != rank) {
			continue
		}
		if encoder.Encode(line) != nil {
			return
		}
	}
}

func (h *handler) delete(writer http.ResponseWriter, q *query) {
	if err := q.catalog.Delete(q.Context(), q.record.Key); err != nil && !errors.Is(err, errNoRecord) {
		h.fail(writer, err)
		return
	}
	writer.WriteHeader(http.StatusNoContent)
}

// authorize reports whether the request's token may use its method; if not, it has
// answered.
func (h *handler) authorize(writer http.ResponseWriter, request *http.Request) bool {
	verb := map[string]string{http.MethodDelete: "delete"}[request.Method]
	if verb == "" {
		verb = "get"
	}
	token, found := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" {
		refuse(writer, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the request has no token")
		return false
	}
	now, key := h.clock.Now(), sha256.Sum256([]byte(verb+"\n"+token))
	if until, known := h.allowed.Get(key); known && now.Before(until.(time.Time)) {
		return true
	}
	if !h.reviews.AllowN(now, 1) {
		refuse(writer, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many tokens to review; retry in a second")
		return false
	}
	if err := h.review(request.Context(), token, verb); err != nil {
		refused := &refusal{}
		if errors.As(err, &refused) {
			refuse(writer, refused.code, refused.reason, refused.Error())
		} else {
			h.fail(writer, err)
		}
		return false
	}
	h.allowed.Add(key, now.Add(allowedFor))
	return true
}

// refusal is an answer to a token.
type refusal struct {
	code    int
	reason  metav1.StatusReason
	message string
}

func (r *refusal) Error() string { return r.message }

// review asks the API server about a token.
func (h *handler) review(ctx context.Context, token, verb string) error {
	user, err := review.TokenFor(ctx, h.api, token, history.Audience)
	if err != nil {
		return fmt.Errorf("review a token: %w", err)
	}
	if user == nil {
		return &refusal{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the token is not valid, or was not issued for the audience " + history.Audience}
	}
	spec := review.Subject(user)
	spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: history.Permission, Verb: verb}
	access, err := h.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review the permissions of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return &refusal{http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%s has no permission to %s %s", user.Username, verb, history.Permission)}
	}
	return nil
}

// failRecord answers that a record cannot be read.
func (h *handler) failRecord(writer http.ResponseWriter, err error) {
	if errors.Is(err, errCorrupt) {
		refuse(writer, http.StatusGone, metav1.StatusReasonGone, "the record is corrupt, and cannot be read")
		return
	}
	h.fail(writer, err)
}

// fail hides the cause, which may have names of the store.
func (h *handler) fail(writer http.ResponseWriter, err error) {
	h.log.Error("answer a request for the history", "error", err)
	refuse(writer, http.StatusInternalServerError, metav1.StatusReasonInternalError, "the history could not be read; the log of Deployment trireme-history has the cause")
}

// refuse answers with a Status, as the API server does.
func refuse(writer http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	respond(writer, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func respond(writer http.ResponseWriter, code int, content any) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	_ = json.NewEncoder(writer).Encode(content)
}

// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/kube/review"
)

const (
	// maxProgressBytes is enough for 256 metrics of the maximum length, escaped.
	maxProgressBytes = 256 << 10
	// maxRequests is how many requests are handled at a time: each may hold a body.
	maxRequests = 64
	// maxRequestsOfJob keeps slow senders from using all of them.
	maxRequestsOfJob = 4
	reviewTimeout    = 10 * time.Second
)

// Jobs finds jobs and their pods.
type Jobs interface {
	// Find returns the current start of a job, and what is known about the pod of a sender.
	// It returns a NotFound error if there is no such job.
	Find(ctx context.Context, key Key, sender reports.Sender) (Start, reports.Target, error)
}

// Handler serves the reports of jobs, and to Trireme's server what they contain.
type Handler struct {
	store         *Store
	jobs          Jobs
	api           kubernetes.Interface
	authenticator *authenticator
	slots         chan struct{}

	mutex sync.Mutex
	busy  map[Key]int
}

// NewHandler returns the handler of all routes.
func NewHandler(store *Store, jobs Jobs, api kubernetes.Interface) http.Handler {
	h := &Handler{store: store, jobs: jobs, api: api, authenticator: newAuthenticator(api, store.clock), slots: make(chan struct{}, maxRequests), busy: map[Key]int{}}
	routes := http.NewServeMux()
	for _, kind := range []job.Kind{job.KindTrainJob, job.KindMPIJob, job.KindJobSet} {
		path := "/apis/" + job.ReportAudience(kind, "{namespace}", "{name}")
		routes.HandleFunc("POST "+path, h.limited(func(w http.ResponseWriter, r *http.Request) { h.progress(w, r, keyOf(kind, r)) }))
		routes.HandleFunc("POST "+path+protocol.ActivitySuffix, h.limited(func(w http.ResponseWriter, r *http.Request) { h.activity(w, r, keyOf(kind, r)) }))
		for _, part := range []string{reports.PartRanks, reports.PartCurves} {
			routes.HandleFunc("GET "+reports.ReadPath(kind, "{namespace}", "{name}", part), h.limited(func(w http.ResponseWriter, r *http.Request) { h.read(w, r, keyOf(kind, r), part) }))
		}
	}
	return routes
}

func keyOf(kind job.Kind, request *http.Request) Key {
	return Key{Kind: kind, Namespace: request.PathValue("namespace"), Name: request.PathValue("name")}
}

// limited refuses requests while too many are handled.
func (h *Handler) limited(next http.HandlerFunc) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		select {
		case h.slots <- struct{}{}:
			defer func() { <-h.slots }()
			next(writer, request)
		default:
			writer.Header().Set("Retry-After", "1")
			h.refuse(writer, request, http.StatusServiceUnavailable, "Busy", "too many reports at a time; retry in a second")
		}
	}
}

// enter refuses requests while a job has too many.
func (h *Handler) enter(writer http.ResponseWriter, request *http.Request, key Key) bool {
	h.mutex.Lock()
	full := h.busy[key] == maxRequestsOfJob
	if !full {
		h.busy[key]++
	}
	h.mutex.Unlock()
	if full {
		writer.Header().Set("Retry-After", "1")
		h.refuse(writer, request, http.StatusTooManyRequests, "Busy", fmt.Sprintf("job %s sends too many reports at a time; retry in a second", key.Name))
	}
	return !full
}

func (h *Handler) leave(key Key) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.busy[key]--; h.busy[key] == 0 {
		delete(h.busy, key)
	}
}

// progress receives a report of Kubeflow Trainer's protocol. Like Trainer, it answers with
// the report.
func (h *Handler) progress(writer http.ResponseWriter, request *http.Request, key Key) {
	start, _, ok := h.authorize(writer, request, key, false)
	if !ok || !h.enter(writer, request, key) {
		return
	}
	defer h.leave(key)
	body, ok := h.body(writer, request, maxProgressBytes)
	if !ok {
		return
	}
	progress, err := reports.Parse(body)
	if err != nil {
		h.refuse(writer, request, http.StatusUnprocessableEntity, "Invalid", err.Error())
		return
	}
	h.store.AddProgress(start, progress)
	writer.Header().Set("Content-Type", "application/json")
	_, _ = writer.Write(body)
}

// activity receives a report of the launcher's agent.
func (h *Handler) activity(writer http.ResponseWriter, request *http.Request, key Key) {
	start, target, ok := h.authorize(writer, request, key, true)
	if !ok || !h.enter(writer, request, key) {
		return
	}
	defer h.leave(key)
	limits := reports.LimitsOf(target.Pods)
	body, ok := h.body(writer, request, limits.Bytes)
	if !ok {
		return
	}
	report, err := reports.ParseActivity(body, limits)
	if err != nil {
		h.refuse(writer, request, http.StatusUnprocessableEntity, "Invalid", err.Error())
		return
	}
	respond(writer, http.StatusOK, h.store.AddActivity(start, report))
}

// authorize checks that a pod of the job's current start reports.
func (h *Handler) authorize(writer http.ResponseWriter, request *http.Request, key Key, forAll bool) (Start, reports.Target, bool) {
	user := h.authenticate(writer, request, job.ReportAudience(key.Kind, key.Namespace, key.Name))
	if user == nil {
		return Start{}, reports.Target{}, false
	}
	sender := senderOf(user)
	start, target, err := h.jobs.Find(request.Context(), key, sender)
	if apierrors.IsNotFound(err) {
		h.refuse(writer, request, http.StatusNotFound, "NoJob", fmt.Sprintf("%s %s/%s does not exist", key.Kind, key.Namespace, key.Name))
		return start, target, false
	}
	if err != nil {
		h.fail(writer, request, fmt.Errorf("read %s %s/%s: %w", key.Kind, key.Namespace, key.Name, err))
		return start, target, false
	}
	if refused := reports.Refused(sender, target, forAll); refused != "" {
		h.refuse(writer, request, http.StatusForbidden, string(refused), refused.Message(sender, target))
		return start, target, false
	}
	return start, target, true
}

// authenticate returns the user of the request's token; nil after an error response.
func (h *Handler) authenticate(writer http.ResponseWriter, request *http.Request, audience string) *authenticationv1.UserInfo {
	token, found := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" {
		h.refuse(writer, request, http.StatusUnauthorized, "NoToken", "the request has no token: send the header Authorization: Bearer TOKEN")
		return nil
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	source, _, _ := net.SplitHostPort(request.RemoteAddr)
	user, err := h.authenticator.user(ctx, source, token, audience)
	switch {
	case errors.Is(err, errTooMany):
		writer.Header().Set("Retry-After", "1")
		h.refuse(writer, request, http.StatusTooManyRequests, "TooManyReviews", err.Error())
	case err != nil:
		h.fail(writer, request, err)
	case user == nil:
		h.refuse(writer, request, http.StatusUnauthorized, "InvalidToken", fmt.Sprintf("the token is not valid, or was not issued for the audience %s", audience))
	}
	return user
}

// read answers Trireme's server, which has checked that its caller may get the job.
func (h *Handler) read(writer http.ResponseWriter, request *http.Request, key Key, part string) {
	user := h.authenticate(writer, request, reports.ReadAudience)
	if user == nil {
		return
	}
	spec := review.Subject(user)
	spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: reports.ReadPermission, Verb: "get"}
	access, err := h.api.AuthorizationV1().SubjectAccessReviews().Create(request.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		h.fail(writer, request, fmt.Errorf("review the permissions of %s: %w", user.Username, err))
		return
	}
	if !access.Status.Allowed {
		h.refuse(writer, request, http.StatusForbidden, "NoPermission", fmt.Sprintf("%s has no permission to get %s", user.Username, reports.ReadPermission))
		return
	}
	start, _, err := h.jobs.Find(request.Context(), key, reports.Sender{})
	if err != nil {
		h.refuse(writer, request, http.StatusNotFound, "NoJob", fmt.Sprintf("%s %s/%s does not exist", key.Kind, key.Namespace, key.Name))
		return
	}
	if part == reports.PartCurves {
		respond(writer, http.StatusOK, reports.JobCurves{Curves: h.store.Curves(start.UID)})
		return
	}
	latest, receivedAt := h.store.Ranks(start.UID)
	respond(writer, http.StatusOK, reports.RanksOf(latest, receivedAt))
}

func (h *Handler) body(writer http.ResponseWriter, request *http.Request, limit int64) ([]byte, bool) {
	body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, limit))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		h.refuse(writer, request, http.StatusRequestEntityTooLarge, "TooLarge", fmt.Sprintf("the body has more than %d bytes", limit))
		return nil, false
	}
	if err != nil {
		h.refuse(writer, request, http.StatusBadRequest, "Incomplete", "the body could not be read: "+err.Error())
		return nil, false
	}
	return body, true
}

// refuse answers with a Status, as the API server does, and counts refused reports.
func (h *Handler) refuse(writer http.ResponseWriter, request *http.Request, code int, reason, message string) {
	if request.Method == http.MethodPost {
		h.store.metrics.refused.WithLabelValues(reason).Inc()
	}
	respond(writer, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReason(reason), Message: message,
	})
}

func (h *Handler) fail(writer http.ResponseWriter, request *http.Request, err error) {
	logf.FromContext(request.Context()).WithName("reports").Error(err, "Handle a report", "path", request.URL.Path)
	h.refuse(writer, request, http.StatusInternalServerError, "InternalError", "the operator could not check the report; retry")
}

func respond(writer http.ResponseWriter, code int, content any) {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	_ = json.NewEncoder(writer).Encode(content)
}

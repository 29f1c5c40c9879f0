package httpserver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// checkTimeout is what all checks of readiness may take. The kubelet gives them a
// second more.
const checkTimeout = 2 * time.Second

// health says whether the server lives, and whether it should get requests.
type health struct {
	checks   map[string]func(context.Context) error
	log      *slog.Logger
	stopping atomic.Bool

	// Anybody may ask, so the checks are made once for all who do.
	mutex     sync.Mutex
	failed    []string
	checkedAt time.Time
}

// lookAgain is after what the checks are made anew.
const checkCacheTime = time.Second

func newHealth(checks map[string]func(context.Context) error, log *slog.Logger) *health {
	return &health{checks: checks, log: log}
}

func (h *health) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "ok") })
	mux.HandleFunc("GET /readyz", func(writer http.ResponseWriter, request *http.Request) {
		if failed := h.failedChecks(context.WithoutCancel(request.Context())); len(failed) > 0 {
			http.Error(writer, "not ready: "+strings.Join(failed, ", "), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(writer, "ok")
	})
}

// notReady are the names of what keeps requests away. Why is for the log: it may tell
// of the cluster's inside.
func (h *health) failedChecks(ctx context.Context) []string {
	if h.stopping.Load() {
		return []string{"shutting down"}
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if time.Since(h.checkedAt) < checkCacheTime {
		return h.failed
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	h.failed = nil
	for _, name := range slices.Sorted(maps.Keys(h.checks)) {
		if err := h.checks[name](ctx); err != nil {
			h.failed = append(h.failed, name)
			h.log.Warn("not ready", "check", name, "error", err.Error())
		}
	}
	h.checkedAt = time.Now()
	return h.failed
}

// APIServerAnswers is a check of readiness: whoever cannot reach the API server can
// tell nobody who they are.
func CheckAPIServer(config *rest.Config) (func(context.Context) error, error) {
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return cluster.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}, nil
}

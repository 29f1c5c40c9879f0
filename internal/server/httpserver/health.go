// SPDX-License-Identifier: Apache-2.0

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

// checkTimeout is the timeout of all readiness checks together. The kubelet's timeout is a
// second longer.
const checkTimeout = 2 * time.Second

// health serves liveness and readiness.
type health struct {
	checks   map[string]func(context.Context) error
	log      *slog.Logger
	stopping atomic.Bool

	// The probes are public, so the results of the checks are cached for all clients.
	mutex     sync.Mutex
	failed    []string
	checkedAt time.Time
}

// checkCacheTime is how long results of the checks are cached.
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

// failedChecks returns the names of the failed checks. The errors are only logged: they
// may have details of the cluster.
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

// CheckAPIServer is a readiness check: without the API server no caller can be
// authenticated.
func CheckAPIServer(config *rest.Config) (func(context.Context) error, error) {
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return cluster.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}, nil
}

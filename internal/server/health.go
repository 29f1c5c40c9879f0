package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
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
	checks map[string]func(context.Context) error
	ending atomic.Bool
}

func (health *health) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /healthz", func(writer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(writer, "ok") })
	mux.HandleFunc("GET /readyz", func(writer http.ResponseWriter, request *http.Request) {
		if reasons := health.notReady(request.Context()); len(reasons) > 0 {
			http.Error(writer, strings.Join(reasons, "; "), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(writer, "ok")
	})
}

// notReady are the reasons why no requests should come.
func (health *health) notReady(ctx context.Context) (reasons []string) {
	if health.ending.Load() {
		return []string{"the server ends"}
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(health.checks)) {
		if err := health.checks[name](ctx); err != nil {
			reasons = append(reasons, name+": "+err.Error())
		}
	}
	return reasons
}

// APIServerAnswers is a check of readiness: whoever cannot reach the API server can
// tell nobody who they are.
func APIServerAnswers(config *rest.Config) (func(context.Context) error, error) {
	cluster, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		return cluster.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}, nil
}

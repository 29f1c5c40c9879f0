// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// remote reads the jobs of one kind from the API server.
type remote struct {
	client client.WithWatch
	kind   *jobview.Kind
}

// scope selects jobs.
type scope struct {
	namespace, name string
	labels          labels.Selector
}

func (s scope) options(raw metav1.ListOptions) *client.ListOptions {
	options := &client.ListOptions{Namespace: s.namespace, LabelSelector: s.labels, Limit: raw.Limit, Continue: raw.Continue, Raw: &raw}
	if s.name != "" {
		options.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.name)
	}
	return options
}

// directPage is the page size of odh server, the same as kubectl's: it has more memory,
// and each page is a round trip.
const directPage = 500

// each reads all jobs of a scope in pages, so that only one page of large jobs is in
// memory. It returns the resource version of the list.
func (r remote) each(ctx context.Context, scope scope, pageSize int64, visit func(client.Object) error) (version string, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := r.list(ctx, scope, options)
		if err != nil {
			return "", err
		}
		if err := meta.EachListItem(page, func(object runtime.Object) error { return visit(object.(client.Object)) }); err != nil {
			return "", err
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return page.GetResourceVersion(), nil
		}
	}
}

// whole returns the whole job. If only a part is in memory, it is read from the API
// server; otherwise the shared object is returned.
func (r remote) whole(ctx context.Context, stored client.Object) (client.Object, error) {
	if !partial.Is(stored) {
		return stored, nil
	}
	view, err := r.kind.Get(ctx, r.client, stored.GetNamespace(), stored.GetName())
	if err != nil {
		return nil, err
	}
	view.SetManagedFields(nil)
	return view.Object, nil
}

func (r remote) list(ctx context.Context, scope scope, raw metav1.ListOptions) (client.ObjectList, error) {
	list := r.kind.NewList()
	return list, r.client.List(ctx, list, scope.options(raw))
}

func (r remote) watch(ctx context.Context, scope scope, raw metav1.ListOptions) (watch.Interface, error) {
	return r.client.Watch(ctx, r.kind.NewList(), scope.options(raw))
}

// confirm returns nil if the cluster has reached a version.
func (r remote) confirm(ctx context.Context, scope scope, version uint64) error {
	list, err := r.list(ctx, scope, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	reached, err := parseVersion(list.GetResourceVersion())
	if err != nil {
		return err
	}
	if version > reached {
		return invalidVersion("is newer than the cluster's current version")
	}
	return nil
}

// errStopped means that the client wants no more events.
var errStopped = errors.New("the reader has stopped")

// watchOptions of a watch of the API server.
type watchOptions struct {
	// seconds after which the API server ends the watch; nil uses its default.
	seconds *int64
	// started, if set, is called when the watch has started.
	started func()
	// handle is called with each change and its version; the object is nil for a bookmark.
	handle func(what watch.EventType, object client.Object, reached uint64) error
}

// follow handles the changes after a version. It returns nil when the API server ends the
// watch, as it does after some time.
func (r remote) follow(ctx context.Context, scope scope, version uint64, options watchOptions) error {
	watcher, err := r.watch(ctx, scope, metav1.ListOptions{ResourceVersion: at(version).String(), AllowWatchBookmarks: true, TimeoutSeconds: options.seconds})
	if err != nil {
		return asExpired(err)
	}
	if options.started != nil {
		options.started()
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if event.Type == watch.Error {
			return asExpired(apierrors.FromObject(event.Object))
		}
		accessor, err := meta.Accessor(event.Object)
		if err != nil {
			return err
		}
		reached, err := parseVersion(accessor.GetResourceVersion())
		if err != nil {
			return err
		}
		object, _ := event.Object.(client.Object)
		if event.Type == watch.Bookmark {
			object = nil
		}
		if err := options.handle(event.Type, object, reached); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// asExpired converts the API server's error for a version that is too old.
func asExpired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return tooOld()
	}
	return err
}

func isExpired(err error) bool { return codeOf(err) == http.StatusGone }

func isInvalid(err error) bool { return codeOf(err) == http.StatusBadRequest }

// codeOf returns the code of an apierror.Error, or 0.
func codeOf(err error) int {
	if known, is := errors.AsType[*apierror.Error](err); is {
		return known.Code
	}
	return 0
}

// clientError converts an error for clients: an unreachable API server is a temporary
// error.
func clientError(err error) error {
	var status apierrors.APIStatus
	if _, known := errors.AsType[*apierror.Error](err); known || errors.As(err, &status) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return unreachable()
}

// hideServerError converts an error of a request with the server's own permissions. The
// API server's text, such as the server's identity, is not for clients.
func hideServerError(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return fmt.Errorf("%w (%v)", unreachable(), err)
	}
	return clientError(err)
}

func unreachable() *apierror.Error {
	return apierror.New(http.StatusServiceUnavailable, "ServiceUnavailable", "The Kubernetes API server cannot be reached", "Retry in a few seconds")
}

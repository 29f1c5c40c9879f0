// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// watcher watches the objects of one kind. The caller of WatchWithContext sets the
// resource version.
type watcher struct {
	client.WithWatch
	list    client.ObjectList
	options client.ListOptions
}

// WatchWithContext starts a watch; a client-go watcher calls it again when one ends.
func (w *watcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	merged := w.options
	merged.Raw = &options
	return w.Watch(ctx, w.list, &merged)
}

// changes calls handle with every change since a resource version, until handle is done. It
// resumes watches that the API server ends. If the version has expired, the caller must
// list again; see expired.
func (w *watcher) changes(ctx context.Context, version string, handle func(watch.EventType, client.Object) (done bool, err error)) error {
	stream, err := watchtools.NewRetryWatcherWithContext(ctx, version, w)
	if err != nil {
		return err
	}
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-stream.ResultChan():
			if !open {
				return apierrors.NewResourceExpired("the watch has ended")
			}
			if event.Type == watch.Error {
				return apierrors.FromObject(event.Object)
			}
			object, isObject := event.Object.(client.Object)
			if !isObject || event.Type == watch.Bookmark {
				continue
			}
			if done, err := handle(event.Type, object); done || err != nil {
				return err
			}
		}
	}
}

// pause before a job is read again after its watch has failed.
const pause = 500 * time.Millisecond

// expired reports whether a watch failed because its resource version is too old.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// versionOf returns the latest resource version of a kind. The version of an object is
// as old as its last change, and may have expired.
func versionOf(ctx context.Context, kind *kind, api client.Reader, options client.ListOptions) (string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
	options.Limit = 1
	err := api.List(ctx, list, &options)
	return list.GetResourceVersion(), err
}

// followJob calls handle with a job, now and whenever it changes, until handle is done. It
// returns an error if the job is deleted.
func followJob(ctx context.Context, kind *kind, api client.WithWatch, namespace, name string, handle func(*view) (done bool, err error)) error {
	options := client.ListOptions{Namespace: namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}
	for version, shown := "", ""; ; {
		j, err := kind.Get(ctx, api, namespace, name)
		if err != nil {
			return err
		}
		if j.GetResourceVersion() != shown {
			if done, err := handle(j); done || err != nil {
				return err
			}
			shown = j.GetResourceVersion()
		}
		if version == "" {
			version = shown
		}
		w := &watcher{WithWatch: api, list: kind.NewList(), options: options}
		err = w.changes(ctx, version, func(event watch.EventType, object client.Object) (bool, error) {
			if event == watch.Deleted {
				return true, deletedFailure(kind, name)
			}
			shown = object.GetResourceVersion()
			return handle(jobview.Of(object))
		})
		if err == nil || !expired(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		if version, err = versionOf(ctx, kind, api, options); err != nil {
			return err
		}
	}
}

// reasonDeleted: the job was deleted while it was watched.
const reasonDeleted = "Deleted"

func deletedFailure(kind *kind, name string) *failure {
	return &failure{code: exitNotFound, message: fmt.Sprintf("%s %q was deleted", kind.Kind, name), reason: reasonDeleted}
}

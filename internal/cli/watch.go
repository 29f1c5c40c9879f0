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

// watcher is one kind of objects as a source of changes. The version comes last in
// the options, from whoever starts the watch.
type watcher struct {
	client.WithWatch
	list    client.ObjectList
	options client.ListOptions
}

// WatchWithContext starts a watch; a client-go watcher calls it again when one ends.
func (watcher *watcher) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	merged := watcher.options
	merged.Raw = &options
	return watcher.Watch(ctx, watcher.list, &merged)
}

// changes hands every change since a version to see, until see is done. The API
// server ends watches as it likes; they are taken up again. errTooOld means that
// whoever asks has to list anew.
func (watcher *watcher) changes(ctx context.Context, version string, see func(watch.EventType, client.Object) (done bool, err error)) error {
	stream, err := watchtools.NewRetryWatcherWithContext(ctx, version, watcher)
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
			if done, err := see(event.Type, object); done || err != nil {
				return err
			}
		}
	}
}

// pause before a job is read anew after its watch could not go on.
const pause = 500 * time.Millisecond

// expired: the cluster no longer knows the version that a watch was to go on from.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// version is the newest version of a kind. That of an object is as old as its last
// change, and the cluster may have forgotten it.
func versionOf(ctx context.Context, kind *kind, from client.Reader, options client.ListOptions) (string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GVK.GroupVersion().WithKind(kind.GVK.Kind + "List"))
	options.Limit = 1
	err := from.List(ctx, list, &options)
	return list.GetResourceVersion(), err
}

// follow shows a job to see, now and whenever it changes, until see is done. It is
// an error if the job is deleted meanwhile.
func followJob(ctx context.Context, kind *kind, from client.WithWatch, namespace, name string, see func(*view) (done bool, err error)) error {
	options := client.ListOptions{Namespace: namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}
	for version, shown := "", ""; ; {
		seen, err := kind.Get(ctx, from, namespace, name)
		if err != nil {
			return err
		}
		if seen.GetResourceVersion() != shown {
			if done, err := see(seen); done || err != nil {
				return err
			}
			shown = seen.GetResourceVersion()
		}
		if version == "" {
			version = shown
		}
		one := &watcher{WithWatch: from, list: kind.NewList(), options: options}
		err = one.changes(ctx, version, func(event watch.EventType, object client.Object) (bool, error) {
			if event == watch.Deleted {
				return true, deleted(kind, name)
			}
			shown = object.GetResourceVersion()
			return see(jobview.Of(object))
		})
		if err == nil || !expired(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		if version, err = versionOf(ctx, kind, from, options); err != nil {
			return err
		}
	}
}

// reasonDeleted: somebody deleted the job.
const reasonDeleted = "Deleted"

func deleted(kind *kind, name string) *failure {
	return &failure{code: exitNotFound, message: fmt.Sprintf("%s %q was deleted", kind.Kind, name), reason: reasonDeleted}
}

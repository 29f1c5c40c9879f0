// SPDX-License-Identifier: Apache-2.0

package partial

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

const (
	// PageSize is how many objects are listed at a time. etcd stores objects of up to
	// 1.5 MiB, and a page is in memory as a whole, once as JSON and once decoded.
	PageSize = 16
	// listAttempts is how often a list is started whose continue token expires.
	listAttempts = 3
)

// NewInformer is like client-go's, but also lists in pages. Informers stream what
// exists, one object at a time. Where an API server does not support that (WatchList,
// before Kubernetes 1.34), they list everything at once: the API server ignores a limit
// of such a list. So the list is read in pages here, and each is reduced before the next
// one is read.
func NewInformer(source cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	listWatch := cache.ToListerWatcherWithContext(source)
	return cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return listPages(ctx, options, listWatch.ListWithContext)
		},
		WatchFuncWithContext: listWatch.WatchWithContext,
	}, example, resync, indexers)
}

type lister func(context.Context, metav1.ListOptions) (runtime.Object, error)

// listPages returns a whole list, as a cache keeps it.
func listPages(ctx context.Context, options metav1.ListOptions, list lister) (found runtime.Object, err error) {
	for range listAttempts {
		if found, err = readPages(ctx, options, list); !apierrors.IsResourceExpired(err) {
			break
		}
	}
	return found, err
}

func readPages(ctx context.Context, options metav1.ListOptions, list lister) (runtime.Object, error) {
	// A version is a lower bound, and the newest state satisfies every one.
	options.ResourceVersion, options.ResourceVersionMatch = "", ""
	options.Limit, options.Continue = PageSize, ""
	var items []runtime.Object
	for {
		page, err := list(ctx, options)
		if err != nil {
			return nil, err
		}
		if err := meta.EachListItem(page, func(item runtime.Object) error {
			kept, err := Transform(item)
			items = append(items, kept.(runtime.Object))
			return err
		}); err != nil {
			return nil, err
		}
		metadata, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if options.Continue = metadata.GetContinue(); options.Continue == "" {
			metadata.SetRemainingItemCount(nil)
			return page, meta.SetList(page, items)
		}
	}
}

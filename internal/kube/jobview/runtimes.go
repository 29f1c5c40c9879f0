// SPDX-License-Identifier: Apache-2.0

package jobview

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// RuntimeCache reads the runtimes for the models of many jobs. It reads each of them only
// once, even if it does not exist.
type RuntimeCache struct {
	client.Reader
	cache map[string]cachedRuntime
}

// cachedRuntime is a cached response of the cluster.
type cachedRuntime struct {
	object client.Object
	err    error
}

// NewRuntimeCache returns an empty cache.
func NewRuntimeCache(reader client.Reader) *RuntimeCache {
	return &RuntimeCache{Reader: reader, cache: map[string]cachedRuntime{}}
}

// Get caches runtimes.
func (c *RuntimeCache) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	id := fmt.Sprintf("%T %s", object, key)
	entry, cached := c.cache[id]
	if !cached {
		entry.err = c.Reader.Get(ctx, key, object, options...)
		entry.object = object
		c.cache[id] = entry
		return entry.err
	}
	switch target := object.(type) {
	case *v2alpha1.ClusterTrainingRuntime:
		entry.object.(*v2alpha1.ClusterTrainingRuntime).DeepCopyInto(target)
	case *v2alpha1.TrainingRuntime:
		entry.object.(*v2alpha1.TrainingRuntime).DeepCopyInto(target)
	}
	return entry.err
}

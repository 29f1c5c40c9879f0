// SPDX-License-Identifier: Apache-2.0

// Package history keeps what is known about jobs after they have finished: it watches
// jobs, follows their launchers' logs, and writes one record for each job into a store. It
// only reads from the cluster, so whatever happens to it or to its store, jobs run on.
package history

import "context"

// Store keeps blobs by name. Names are paths of records (history.Key.Path) with a suffix.
type Store interface {
	// Put writes a blob. A reader never finds a part of it.
	Put(ctx context.Context, name string, content []byte) error
	// Get reads a blob.
	Get(ctx context.Context, name string) ([]byte, error)
	// Delete deletes a blob. It is no error if the blob does not exist.
	Delete(ctx context.Context, name string) error
	// List returns all blobs.
	List(ctx context.Context) ([]Blob, error)
}

// Blob is a blob in a list.
type Blob struct {
	Name  string
	Bytes int64
}

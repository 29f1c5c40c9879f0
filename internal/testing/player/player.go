// SPDX-License-Identifier: Apache-2.0

// Package player plays the parts of a cluster that a test's API server lacks: the
// scheduler, kubelets and the garbage collector. It has the jobs that they play for,
// too.
package player

import (
	"context"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// Player acts in one namespace, for one test.
type Player struct {
	testing.TB
	Client    client.WithWatch
	Namespace string
}

// Connect is a client that knows every kind that the operator knows, and is not
// held back.
func Connect(t testing.TB, connection *rest.Config) client.WithWatch {
	t.Helper()
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = 1000, 1000
	connection.WarningHandlerWithContext = rest.NoWarnings{}
	made, err := client.NewWithWatch(connection, client.Options{Scheme: operator.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// Create creates an object in the namespace.
func (player *Player) Create(object client.Object) {
	player.Helper()
	object.SetNamespace(player.Namespace)
	if err := player.Client.Create(context.Background(), object); err != nil {
		player.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

// Eventually tries until something holds.
func (player *Player) Eventually(what string, holds func() error) {
	player.Helper()
	eventually.Succeeds(player, what, holds)
}

// Get reads an object.
func (player *Player) Get(object client.Object, name string) error {
	return player.Client.Get(context.Background(), client.ObjectKey{Namespace: player.Namespace, Name: name}, object)
}

// MustGet reads an object that is there.
func (player *Player) MustGet(object client.Object, name string) {
	player.Helper()
	if err := player.Get(object, name); err != nil {
		player.Fatalf("read %T %s: %v", object, name, err)
	}
}

// Until reads an object until something holds of it.
func (player *Player) Until(what string, object client.Object, holds func() error) {
	player.Helper()
	player.Eventually(what, func() error {
		if err := player.Get(object, object.GetName()); err != nil {
			return err
		}
		return holds()
	})
}

// Patch changes an object, which is then as it is stored.
func (player *Player) Patch(object client.Object, patch string) {
	player.Helper()
	object.SetNamespace(player.Namespace)
	if err := player.Client.Patch(context.Background(), object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		player.Fatalf("change %T %s: %v", object, object.GetName(), err)
	}
}

// Delete deletes an object that may be gone already.
func (player *Player) Delete(object client.Object, options ...client.DeleteOption) {
	player.Helper()
	object.SetNamespace(player.Namespace)
	if err := client.IgnoreNotFound(player.Client.Delete(context.Background(), object, options...)); err != nil {
		player.Fatalf("delete %T %s: %v", object, object.GetName(), err)
	}
}

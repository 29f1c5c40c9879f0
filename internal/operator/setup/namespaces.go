// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"fmt"

	"github.com/trireme-mpi/trireme/internal/engine/teamspace"
	"github.com/trireme-mpi/trireme/internal/kube/provision"
)

// PrepareNamespaces creates or updates the namespaces of teams, as odh namespace prepare
// does. It checks all settings before it changes anything. Fields that a user has changed
// are not overwritten: the namespace is kept as it is, and the others are prepared.
func (s Setup) PrepareNamespaces(ctx context.Context, namespaces []teamspace.Settings) error {
	for i := range namespaces {
		namespaces[i] = namespaces[i].WithDefaults()
		if err := namespaces[i].Validate(); err != nil {
			return fmt.Errorf("namespaces[%d]: %w", i, err)
		}
	}
	for _, settings := range namespaces {
		objects, err := provision.Objects(ctx, s.Client, settings)
		if err != nil {
			return fmt.Errorf("prepare namespace %s: %w", settings.Name, err)
		}
		results, err := provision.Apply(ctx, s.Client, objects, provision.Options{})
		switch {
		case provision.IsConflict(err):
			s.report("Namespace %s was changed on this cluster and is kept: %v. To overwrite: odh namespace prepare %s --force-conflicts", settings.Name, err, settings.Name)
		case err != nil:
			return fmt.Errorf("prepare namespace %s: %w", settings.Name, err)
		}
		for _, result := range results {
			s.report("%s %s of namespace %s is %s", result.Object.GetKind(), result.Object.GetName(), settings.Name, result.Action)
		}
	}
	return nil
}

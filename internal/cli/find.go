// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
)

func stateColour(state string) colour {
	switch state {
	case string(training.PhaseSucceeded):
		return green
	case string(training.PhaseFailed):
		return red
	case string(training.PhaseRunning):
		return cyan
	default:
		return yellow
	}
}

// find reads a job given as NAME or KIND/NAME.
func (e *environment) find(ctx context.Context, reader client.Reader, namespace, argument string) (*view, error) {
	kindName, name, hasKind := strings.Cut(argument, "/")
	if hasKind {
		kind, err := kindNamed(kindName)
		if err != nil {
			return nil, err
		}
		return kind.Get(ctx, reader, namespace, name)
	}
	for _, kind := range kinds {
		j, err := kind.Get(ctx, reader, namespace, argument)
		if err == nil || !apierrors.IsNotFound(err) {
			return j, err
		}
	}
	return nil, &failure{code: exitNotFound, message: fmt.Sprintf("no job %q in namespace %q", argument, namespace), reason: "NotFound",
		suggestions: []string{"List the jobs of all namespaces: " + e.calledAs + " training list --all-namespaces"}}
}

// kindNamed returns the kind with this command name, alias or resource name.
func kindNamed(name string) (*kind, error) {
	for _, kind := range kinds {
		if strings.EqualFold(name, kind.Command) || slices.Contains(kind.Aliases, strings.ToLower(name)) || name == kind.Resource() {
			return kind, nil
		}
	}
	return nil, &failure{code: exitUsage, message: fmt.Sprintf("unknown kind of job %q", name), reason: "Usage", suggestions: []string{"The kinds are trainjob and mpijob; a job is trainjob/NAME or mpijob/NAME"}}
}

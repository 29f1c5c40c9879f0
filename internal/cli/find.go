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
func (e *environment) find(ctx context.Context, reader client.Reader, namespace, written string) (*view, error) {
	word, name, named := strings.Cut(written, "/")
	if named {
		kind, err := kindNamed(word)
		if err != nil {
			return nil, err
		}
		return kind.Get(ctx, reader, namespace, name)
	}
	for _, kind := range kinds {
		j, err := kind.Get(ctx, reader, namespace, written)
		if err == nil || !apierrors.IsNotFound(err) {
			return j, err
		}
	}
	return nil, &failure{code: exitNotFound, message: fmt.Sprintf("no job %q in namespace %q", written, namespace), reason: "NotFound",
		suggestions: []string{"List the jobs of all namespaces: " + e.calledAs + " training list --all-namespaces"}}
}

// kindNamed returns the kind with this command name, alias or resource name.
func kindNamed(word string) (*kind, error) {
	for _, kind := range kinds {
		if strings.EqualFold(word, kind.Command) || slices.Contains(kind.Aliases, strings.ToLower(word)) || word == kind.Resource() {
			return kind, nil
		}
	}
	return nil, &failure{code: exitUsage, message: fmt.Sprintf("unknown kind of job %q", word), reason: "Usage", suggestions: []string{"Use trainjob/NAME or mpijob/NAME"}}
}

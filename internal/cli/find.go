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

// stateColour is the colour of a state.
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

// find reads a job that is written as NAME or KIND/NAME.
func (environment *environment) find(ctx context.Context, reader client.Reader, namespace, written string) (*view, error) {
	word, name, named := strings.Cut(written, "/")
	if named {
		kind, err := kindNamed(word)
		if err != nil {
			return nil, err
		}
		return kind.Get(ctx, reader, namespace, name)
	}
	for _, kind := range kinds {
		found, err := kind.Get(ctx, reader, namespace, written)
		if err == nil || !apierrors.IsNotFound(err) {
			return found, err
		}
	}
	return nil, &failure{code: exitNotFound, message: fmt.Sprintf("no job %q in namespace %q", written, namespace), reason: "NotFound",
		suggestions: []string{"See what there is, in every namespace: " + environment.calledAs + " training list --all-namespaces"}}
}

// kindNamed is the kind that a user means by a word.
func kindNamed(word string) (*kind, error) {
	for _, kind := range kinds {
		if strings.EqualFold(word, kind.Command) || slices.Contains(kind.Aliases, strings.ToLower(word)) || word == kind.Resource() {
			return kind, nil
		}
	}
	return nil, &failure{code: exitUsage, message: fmt.Sprintf("%q is no kind of job", word), reason: "Usage", suggestions: []string{"Write trainjob/NAME or mpijob/NAME"}}
}

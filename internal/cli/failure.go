package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
)

// Exit codes, as the documentation has them.
const (
	exitOK        = 0
	exitError     = 1
	exitUsage     = 2
	exitNotFound  = 3
	exitForbidden = 4
	exitQuota     = 5
	exitJobFailed = 6
	exitTimeout   = 7
	// exitInterrupted is what shells report for a command that Ctrl-C ended.
	exitInterrupted = 130
)

// documentation is where all is described; the user guide has most of it.
const documentation = "https://github.com/trireme-mpi/trireme/blob/main/docs/"

// exit ends odh with a code, after everything has been said.
type exit int

func (code exit) Error() string { return fmt.Sprintf("exit code %d", int(code)) }

// failure is an error in the form that users see: what happened, why, and what to
// do about it.
type failure struct {
	code        int
	message     string
	reason      string
	details     []string
	suggestions []string
	// page of the user guide, such as jobs.md.
	page string
}

func (failure *failure) Error() string { return failure.message }

func (failure *failure) print(to io.Writer) {
	fmt.Fprintf(to, "Error: %s\n", failure.message)
	if failure.reason != "" {
		fmt.Fprintf(to, "Reason: %s\n", failure.reason)
	}
	if len(failure.details) == 1 {
		fmt.Fprintf(to, "Details: %s\n", indented(failure.details[0], "  "))
	} else if len(failure.details) > 1 {
		fmt.Fprintln(to, "Details:")
		for _, detail := range failure.details {
			fmt.Fprintf(to, "  - %s\n", indented(detail, "    "))
		}
	}
	if len(failure.suggestions) > 0 {
		fmt.Fprintln(to, "Suggestions:")
		for i, suggestion := range failure.suggestions {
			fmt.Fprintf(to, "  %d. %s\n", i+1, suggestion)
		}
	}
	page := failure.page
	if page == "" {
		page = "cli.md#exit-codes"
	}
	fmt.Fprintf(to, "Documentation: %s%s\n", documentation, path.Join("user-guide", page))
}

// indented puts all lines of a text but the first behind an indent.
func indented(text, indent string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+indent)
}

// usageFailure is a command line that makes no sense.
func usageFailure(command *cobra.Command, message string) *failure {
	return &failure{code: exitUsage, message: message, reason: "Usage", suggestions: []string{"See what it takes: " + command.CommandPath() + " --help"}}
}

// inputFailure is a file or a flag that cannot be taken.
func inputFailure(message string, details ...string) *failure {
	return &failure{code: exitUsage, message: message, reason: "InvalidInput", details: details,
		suggestions: []string{"Correct the input and try again; nothing was created."}, page: "jobs.md"}
}

// explain turns any error into one that users can act on.
func explain(err error, calledAs string) *failure {
	var known *failure
	var status apierrors.APIStatus
	var timeout net.Error
	var request *url.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.Canceled):
		return &failure{code: exitInterrupted, message: "interrupted", reason: "Interrupted"}
	case errors.As(err, &status):
		return explainStatus(err, status.Status(), calledAs)
	case errors.Is(err, context.DeadlineExceeded):
		more := "--timeout 10m"
		if strings.Contains(err.Error(), "Client.Timeout") {
			more = "--request-timeout 1m"
		}
		return &failure{code: exitTimeout, message: "it took too long", reason: "Timeout", details: []string{err.Error()}, suggestions: []string{"Give it more time: " + more}}
	case meta.IsNoMatchError(err):
		return notServed(err.Error())
	case errors.As(err, &request), errors.As(err, &timeout):
		return unreachable(err)
	default:
		return &failure{code: exitError, message: err.Error(), reason: "Error"}
	}
}

// allOf is what went wrong with several objects, as one error: that of the one, or
// a list of them.
func (environment *environment) allOf(failures []error, undone string) error {
	if len(failures) < 2 {
		return errors.Join(failures...)
	}
	all := &failure{message: fmt.Sprintf("%d jobs were not %s", len(failures), undone)}
	for i, err := range failures {
		one := explain(err, environment.calledAs)
		if i == 0 {
			all.code, all.reason, all.suggestions, all.page = one.code, one.reason, one.suggestions, one.page
		}
		if one.code != all.code {
			all.code, all.reason, all.suggestions, all.page = exitError, "SeveralErrors", nil, ""
		}
		all.details = append(all.details, one.message)
	}
	return all
}

func noCluster(err error) *failure {
	return &failure{code: exitError, message: "no cluster to talk to", reason: "NoCluster", details: []string{strings.TrimSpace(err.Error())}, suggestions: []string{
		"Name a kubeconfig: --kubeconfig FILE, or the variable KUBECONFIG",
		"See which contexts there are: kubectl config get-contexts",
	}}
}

func unreachable(err error) *failure {
	return &failure{code: exitError, message: "the cluster does not answer", reason: "Unreachable", details: []string{err.Error()}, suggestions: []string{
		"See whether it answers at all: kubectl cluster-info",
		"See which cluster is meant: kubectl config current-context",
	}}
}

// notServed is a cluster without the job APIs, or with older ones.
func notServed(detail string) *failure {
	return &failure{code: exitError, message: "the cluster does not serve the API that this command needs", reason: "APINotServed", details: []string{detail},
		page: "../admin-guide/operator.md", suggestions: []string{
			"See what it serves: kubectl api-resources --api-group " + training.Group,
			"Have an administrator install Trireme, or a newer version of it, on the cluster: make install",
		}}
}

// explainStatus is what an API server said.
func explainStatus(err error, status metav1.Status, calledAs string) *failure {
	what := described(status.Details)
	switch {
	case apierrors.IsNotFound(err) && (status.Details == nil || status.Details.Name == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)):
		// Not the object is missing, but the path to it.
		return notServed(status.Message)
	case apierrors.IsNotFound(err):
		return &failure{code: exitNotFound, message: what + " not found", reason: "NotFound", details: []string{status.Message},
			suggestions: []string{"See what there is, in every namespace: " + calledAs + " training list --all-namespaces"}}
	case apierrors.IsForbidden(err) && quota.IsExceeded(status):
		return &failure{code: exitQuota, message: "the namespace's quota has no room", reason: "ResourceQuotaExceeded", details: []string{status.Message},
			page: "failures.md", suggestions: []string{"See what the quota leaves: kubectl describe resourcequota", "Ask for less, wait for other jobs to end, or ask for a larger quota"}}
	case apierrors.IsForbidden(err):
		return &failure{code: exitForbidden, message: "you may not do this", reason: "Forbidden", details: []string{status.Message},
			page: "../admin-guide/operator.md", suggestions: []string{"See what you may do: kubectl auth can-i --list", "Ask an administrator for the role trainjob-editor, or mpijob-user, in this namespace"}}
	case apierrors.IsUnauthorized(err):
		return &failure{code: exitForbidden, message: "the cluster does not know you", reason: "Unauthorized", details: []string{status.Message}, suggestions: []string{"Log in again; a token may have expired"}}
	case apierrors.IsAlreadyExists(err):
		return &failure{code: exitError, message: what + " already exists", reason: "AlreadyExists", details: []string{status.Message},
			suggestions: []string{"Choose another name, or delete the job first: " + calledAs + " " + deletion(status.Details)}}
	case apierrors.IsInvalid(err):
		return invalid(what, status)
	default:
		return &failure{code: exitError, message: strings.TrimSpace(status.Message), reason: string(status.Reason)}
	}
}

// invalid is an object that was refused: each of its faults is a detail.
func invalid(what string, status metav1.Status) *failure {
	refused := &failure{code: exitError, message: what + " was refused; nothing was created", reason: "Invalid", page: "jobs.md",
		suggestions: []string{"Correct what the details name, and try again"}}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Field == "<nil>" {
				continue // Rules that were not tried, because of the other faults.
			}
			refused.details = append(refused.details, strings.TrimPrefix(cause.Field+": "+cause.Message, ": "))
		}
	}
	if len(refused.details) == 0 {
		refused.details = []string{status.Message}
	}
	if quota.IsExceeded(status) {
		refused.code, refused.reason, refused.page = exitQuota, "ResourceQuotaExceeded", "failures.md"
	}
	return refused
}

func described(details *metav1.StatusDetails) string {
	if details == nil {
		return "the object"
	}
	name := strings.TrimSpace(details.Kind)
	for _, kind := range kinds {
		if strings.EqualFold(name, kind.Plural) || strings.EqualFold(name, string(kind.Kind)) {
			name = string(kind.Kind)
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%s %q", name, details.Name))
}

func deletion(details *metav1.StatusDetails) string {
	if details == nil {
		return "training delete"
	}
	for _, kind := range kinds {
		if strings.EqualFold(details.Kind, kind.Plural) {
			return kind.Command + " delete " + details.Name
		}
	}
	return "training delete"
}

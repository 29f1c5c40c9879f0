// SPDX-License-Identifier: Apache-2.0

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
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// Exit codes, as documented in the user guide.
const (
	exitOK        = 0
	exitError     = 1
	exitUsage     = 2
	exitNotFound  = 3
	exitForbidden = 4
	exitQuota     = 5
	exitJobFailed = 6
	exitTimeout   = 7
	// exitInterrupted is what shells report for a command stopped by Ctrl-C.
	exitInterrupted = 130
)

// documentation is the address of the docs folder.
const documentation = "https://github.com/trireme-mpi/trireme/blob/main/docs/"

// exit is an exit code for a command that has already printed its result.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// failure is an error as users see it: what happened, why, and what to do.
type failure struct {
	code        int
	message     string
	reason      string
	details     []string
	suggestions []string
	// page of the user guide, such as jobs.md.
	page string
}

func (f *failure) Error() string { return f.message }

func (f *failure) print(to io.Writer) {
	fmt.Fprintf(to, "Error: %s\n", f.message)
	if f.reason != "" {
		fmt.Fprintf(to, "Reason: %s\n", f.reason)
	}
	if len(f.details) == 1 {
		fmt.Fprintf(to, "Details: %s\n", indented(f.details[0], "  "))
	} else if len(f.details) > 1 {
		fmt.Fprintln(to, "Details:")
		for _, detail := range f.details {
			fmt.Fprintf(to, "  - %s\n", indented(detail, "    "))
		}
	}
	if len(f.suggestions) > 0 {
		fmt.Fprintln(to, "Suggestions:")
		for i, suggestion := range f.suggestions {
			fmt.Fprintf(to, "  %d. %s\n", i+1, suggestion)
		}
	}
	page := f.page
	if page == "" {
		page = "cli.md#exit-codes"
	}
	fmt.Fprintf(to, "Documentation: %s%s\n", documentation, path.Join("user-guide", page))
}

// indented indents all lines of a text but the first.
func indented(text, indent string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+indent)
}

// usageFailure reports an invalid command line.
func usageFailure(command *cobra.Command, message string) *failure {
	return &failure{code: exitUsage, message: message, reason: "Usage", suggestions: []string{"See the usage: " + command.CommandPath() + " --help"}}
}

// inputFailure reports an invalid file or flag.
func inputFailure(message string, details ...string) *failure {
	return &failure{code: exitUsage, message: message, reason: "InvalidInput", details: details,
		suggestions: []string{"Fix the input and retry. Nothing was created."}, page: "jobs.md"}
}

// explain turns any error into one that users can act on.
func explain(err error, calledAs string) *failure {
	var f *failure
	var status apierrors.APIStatus
	var timeout net.Error
	var request *url.Error
	var refused *apierror.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &refused):
		return explainServer(refused)
	case errors.Is(err, context.Canceled):
		return &failure{code: exitInterrupted, message: "interrupted", reason: "Interrupted"}
	case errors.As(err, &status):
		return explainStatus(err, status.Status(), calledAs)
	case errors.Is(err, context.DeadlineExceeded):
		flag := "--timeout 10m"
		if strings.Contains(err.Error(), "Client.Timeout") {
			flag = "--request-timeout 1m"
		}
		return &failure{code: exitTimeout, message: "timed out", reason: "Timeout", details: []string{err.Error()}, suggestions: []string{"Allow more time: " + flag}}
	case meta.IsNoMatchError(err):
		return notServedFailure(err.Error())
	case errors.As(err, &request), errors.As(err, &timeout):
		return unreachableFailure(err)
	default:
		return &failure{code: exitError, message: err.Error(), reason: "Error"}
	}
}

// joinFailures joins the errors of several jobs into one: a single error stays as it is,
// several become a list.
func (e *environment) joinFailures(failures []error, verb string) error {
	if len(failures) < 2 {
		return errors.Join(failures...)
	}
	all := &failure{message: fmt.Sprintf("%d jobs were not %s", len(failures), verb)}
	for i, err := range failures {
		f := explain(err, e.calledAs)
		if i == 0 {
			all.code, all.reason, all.suggestions, all.page = f.code, f.reason, f.suggestions, f.page
		}
		if f.code != all.code {
			all.code, all.reason, all.suggestions, all.page = exitError, "SeveralErrors", nil, ""
		}
		all.details = append(all.details, f.message)
	}
	return all
}

func kubeconfigFailure(err error) *failure {
	return &failure{code: exitError, message: "no usable kubeconfig", reason: "NoCluster", details: []string{strings.TrimSpace(err.Error())}, suggestions: []string{
		"Set a kubeconfig: --kubeconfig FILE, or the environment variable KUBECONFIG",
		"List the contexts: kubectl config get-contexts",
	}}
}

func unreachableFailure(err error) *failure {
	return &failure{code: exitError, message: "cannot reach the cluster", reason: "Unreachable", details: []string{err.Error()}, suggestions: []string{
		"Check that the cluster responds: kubectl cluster-info",
		"Check that the context is right: kubectl config current-context",
	}}
}

// notServedFailure reports a cluster without the job APIs, or with an older version.
func notServedFailure(detail string) *failure {
	return &failure{code: exitError, message: "the cluster does not serve the API that this command needs", reason: "APINotServed", details: []string{detail},
		page: "../admin-guide/operator.md", suggestions: []string{
			"List the APIs that it serves: kubectl api-resources --api-group " + training.Group,
			"Ask a cluster administrator to install or upgrade Trireme: make install",
		}}
}

// explainStatus explains an error response of the API server.
func explainStatus(err error, status metav1.Status, calledAs string) *failure {
	object := objectName(status.Details)
	switch {
	case apierrors.IsNotFound(err) && (status.Details == nil || status.Details.Name == "" || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)):
		// The API is missing, not the object.
		return notServedFailure(status.Message)
	case apierrors.IsNotFound(err):
		return &failure{code: exitNotFound, message: object + " not found", reason: "NotFound", details: []string{status.Message},
			suggestions: []string{"List the jobs of all namespaces: " + calledAs + " training list --all-namespaces"}}
	case apierrors.IsForbidden(err) && quota.IsExceeded(status):
		return &failure{code: exitQuota, message: "the namespace's resource quota is exceeded", reason: "ResourceQuotaExceeded", details: []string{status.Message},
			page: "failures.md", suggestions: []string{"See the quota and its usage: kubectl describe resourcequota", "Request less, wait for other jobs to finish, or ask a cluster administrator for a larger quota"}}
	case apierrors.IsForbidden(err):
		return &failure{code: exitForbidden, message: "permission denied", reason: "Forbidden", details: []string{status.Message},
			page: "../admin-guide/operator.md", suggestions: []string{"List your permissions: kubectl auth can-i --list", "Ask a namespace admin for the role trainjob-editor or mpijob-user"}}
	case apierrors.IsUnauthorized(err):
		return &failure{code: exitForbidden, message: "authentication failed", reason: "Unauthorized", details: []string{status.Message}, suggestions: []string{"Log in again; your token may have expired"}}
	case apierrors.IsAlreadyExists(err):
		return &failure{code: exitError, message: object + " already exists", reason: "AlreadyExists", details: []string{status.Message},
			suggestions: []string{"Choose another name, or delete the job first: " + calledAs + " " + deleteCommand(status.Details)}}
	case apierrors.IsInvalid(err):
		return invalidFailure(object, status)
	default:
		return &failure{code: exitError, message: strings.TrimSpace(status.Message), reason: string(status.Reason)}
	}
}

// invalidFailure reports an object that the API server refused, with one detail per fault.
func invalidFailure(object string, status metav1.Status) *failure {
	refused := &failure{code: exitError, message: object + " was refused; nothing was created", reason: "Invalid", page: "jobs.md",
		suggestions: []string{"Fix the fields listed under Details and retry"}}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Field == "<nil>" {
				continue // Rules that were not evaluated because of the other faults.
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

func objectName(details *metav1.StatusDetails) string {
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

func deleteCommand(details *metav1.StatusDetails) string {
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

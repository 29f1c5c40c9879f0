// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/trireme-mpi/trireme/internal/engine/teamspace"
	"github.com/trireme-mpi/trireme/internal/kube/provision"
)

func newNamespaceCommand(env *environment) *cobra.Command {
	command := group(&cobra.Command{Use: "namespace", Short: "Prepare namespaces for teams", Long: "Prepare namespaces for teams. These commands are for cluster administrators."})
	command.AddCommand(newPrepareCommand(env))
	return command
}

// preparer is `namespace prepare`.
type preparer struct {
	*environment
	settings        teamspace.Settings
	quota           string
	defaultRequests string
	isolation       string
	dryRun          string
	output          string
	force           bool
}

func newPrepareCommand(env *environment) *cobra.Command {
	defaults := teamspace.Default("")
	p := &preparer{environment: env}
	command := &cobra.Command{
		Use: "prepare NAME", Short: "Create or update a namespace with all that the jobs of a team need",
		Long: `Create or update a namespace with all that the jobs of a team need: PodSecurity level, ResourceQuota,
LimitRange, NetworkPolicies, role bindings and image pull secret.

The command can be repeated. It checks your permissions first, and changes nothing if one is missing.
Objects that you no longer request are not deleted.`,
		Example: `  odh namespace prepare vision --editor group:vision --viewer user:auditor
  odh namespace prepare vision --quota requests.cpu=64,requests.memory=256Gi,requests.nvidia.com/gpu=8,pods=100
  odh namespace prepare vision --pull-secret trireme-system/registry --dry-run=server
  odh namespace prepare vision --isolation Job --dry-run=client -o yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			p.settings.Name = arguments[0]
			return p.run(command)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&p.settings.Admins, "admin", nil, "Users and groups that also write runtimes, such as user:alice or group:vision")
	flags.StringSliceVar(&p.settings.Editors, "editor", nil, "Users and groups that run jobs")
	flags.StringSliceVar(&p.settings.Viewers, "viewer", nil, "Users and groups that read jobs")
	flags.StringVar(&p.quota, "quota", "", "Limits of a ResourceQuota, such as requests.cpu=64,requests.nvidia.com/gpu=8 (default: no ResourceQuota)")
	flags.StringVar(&p.defaultRequests, "default-requests", "cpu=100m,memory=128Mi", `Requests of containers that set none; "" creates no LimitRange`)
	flags.StringVar(&p.isolation, "isolation", string(defaults.Isolation), "Which pods a job can reach: Namespace (all jobs of the namespace), Job (only its own pods; every job needs a network policy) or None (no NetworkPolicies)")
	flags.Int32SliceVar(&p.settings.EgressPorts, "egress-ports", defaults.EgressPorts, "TCP ports that jobs can reach on any address")
	flags.StringVar(&p.settings.OperatorNamespace, "operator-namespace", defaults.OperatorNamespace, "Namespace of Trireme's operator, to which jobs report their progress")
	flags.Int32Var(&p.settings.ReportsPort, "reports-port", defaults.ReportsPort, "Port of the operator to which jobs report (default: that of Service trireme-reports, or 9444)")
	flags.Lookup("reports-port").DefValue = "0"
	flags.StringVar(&p.settings.PullSecret, "pull-secret", "", "Image pull secret to copy, as NAMESPACE/NAME")
	flags.StringVar(&p.settings.PodSecurity, "pod-security", defaults.PodSecurity, "PodSecurity level: restricted, baseline or privileged")
	flags.StringVar(&p.dryRun, "dry-run", dryRunNone, "One of none, client, server: client only prints the objects, server also validates them in the cluster")
	flags.Lookup("dry-run").NoOptDefVal = dryRunClient
	flags.BoolVar(&p.force, "force-conflicts", false, "Overwrite fields that someone else has changed")
	flags.StringVarP(&p.output, "output", "o", "", "Output format: json or yaml")
	return command
}

func (p *preparer) run(command *cobra.Command) error {
	if err := errors.Join(checkDryRun(command, p.dryRun), checkDocumentOutput(command, p.output)); err != nil {
		return err
	}
	var quotaError, requestError error
	p.settings.Quota, quotaError = resourceList("--quota", p.quota)
	p.settings.DefaultRequests, requestError = resourceList("--default-requests", p.defaultRequests)
	p.settings.Isolation = teamspace.Isolation(p.isolation)
	if err := errors.Join(quotaError, requestError, p.settings.Validate()); err != nil {
		return &failure{code: exitUsage, message: "the namespace cannot be prepared", reason: "InvalidInput", details: strings.Split(err.Error(), "\n"),
			suggestions: []string{"See the usage: " + command.CommandPath() + " --help"}, page: teamsPage}
	}
	api, err := p.client()
	if err != nil {
		return err
	}
	ctx := command.Context()
	if !command.Flags().Changed("reports-port") {
		p.settings.ReportsPort = provision.ReportsPort(ctx, api, p.settings.OperatorNamespace)
	}
	objects, err := provision.Objects(ctx, api, p.settings)
	if err != nil {
		return p.explain(err)
	}
	results := make([]provision.Result, 0, len(objects))
	if p.dryRun == dryRunClient {
		for _, object := range objects {
			results = append(results, provision.Result{Object: object, Action: "prepared"})
		}
	} else if results, err = provision.Apply(ctx, api, objects, provision.Options{DryRun: p.dryRun == dryRunServer, Force: p.force}); err != nil {
		return p.explain(err)
	}
	return p.print(results)
}

// teamsPage is the page about namespaces of teams.
const teamsPage = "../admin-guide/teams.md"

// explain adds what an administrator can do.
func (p *preparer) explain(err error) error {
	var forbidden *provision.ErrForbidden
	var secret *provision.ErrPullSecret
	denied := &failure{code: exitForbidden, message: "you have no permission to prepare namespace " + p.settings.Name + "; nothing was changed", reason: "Forbidden",
		details: []string{err.Error()}, suggestions: []string{"Ask a cluster administrator to run this command"}, page: teamsPage}
	switch {
	case errors.As(err, &forbidden):
		denied.details = forbidden.Missing
		return denied
	case apierrors.IsForbidden(err):
		return denied
	case errors.As(err, &secret):
		return &failure{code: exitError, message: "image pull secret " + secret.Name + " cannot be copied; nothing was changed", reason: "PullSecret",
			details: []string{secret.Err.Error()}, suggestions: []string{"Name a secret of type kubernetes.io/dockerconfigjson: --pull-secret NAMESPACE/NAME"}, page: teamsPage}
	case provision.IsConflict(err):
		return &failure{code: exitError, message: "someone else has changed a field; nothing was changed", reason: "Conflict", details: []string{err.Error()},
			suggestions: []string{"Overwrite the changes: --force-conflicts"}, page: teamsPage}
	}
	return err
}

// print prints what was done, or the objects. Secrets are never printed.
func (p *preparer) print(results []provision.Result) error {
	if p.output == "" {
		suffix := map[string]string{dryRunClient: " (dry run)", dryRunServer: " (server dry run)"}[p.dryRun]
		for _, result := range results {
			fmt.Fprintf(p.Out, "%s/%s %s%s\n", strings.ToLower(result.Object.GetKind()), result.Object.GetName(), result.Action, suffix)
		}
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	for _, result := range results {
		if result.Object.GetKind() == "Secret" {
			p.say("Secret %s is not printed.", result.Object.GetName())
			continue
		}
		object := result.Object.DeepCopy()
		object.SetManagedFields(nil)
		list.Items = append(list.Items, *object)
	}
	var printer printers.ResourcePrinter = &printers.YAMLPrinter{}
	if p.output == "json" {
		printer = &printers.JSONPrinter{}
	}
	return printer.PrintObj(list, p.Out)
}

// resourceList parses resources such as cpu=64,memory=256Gi.
func resourceList(flag, text string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	if text == "" {
		return list, nil
	}
	var faults []error
	for pair := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		quantity, err := resource.ParseQuantity(value)
		if name == "" || err != nil {
			faults = append(faults, fmt.Errorf("%s must be a list such as cpu=64,memory=256Gi; %q is not a resource and a quantity", flag, pair))
			continue
		}
		list[corev1.ResourceName(name)] = quantity
	}
	return list, errors.Join(faults...)
}

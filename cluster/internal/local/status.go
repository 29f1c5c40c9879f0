// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/cluster/internal/addon"
	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/networkpolicy"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// networkPolicyNote warns users about tests of isolation, which cannot fail without
// enforcement.
func networkPolicyNote(report supervisor.Report) string {
	if !report.NetworkPolicies {
		return "NetworkPolicy objects are stored but NOT enforced: the network is a plain bridge.\n" +
			"A test of isolation passes here with any policy. To enforce them: `down`, then `up --network-policies`."
	}
	for _, status := range report.Components {
		if status.Name == component.NetworkPolicies && status.State == supervisor.Ready {
			return "NetworkPolicy objects are enforced by packet filter rules (nft list table ip " + networkpolicy.Table + ")."
		}
	}
	return "NetworkPolicy objects are NOT enforced at the moment: component " + component.NetworkPolicies + " is not ready."
}

// Status prints the status of the cluster and reports whether it is healthy.
func (c *Cluster) Status(ctx context.Context, out io.Writer) (healthy bool, err error) {
	report, err := c.Running(ctx)
	if err != nil {
		return false, err
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tSTATE\tPID\tRESTARTS\tSINCE\tMESSAGE")
	for _, s := range byTable(report.Components) {
		since := ""
		if !s.Since.IsZero() {
			since = time.Since(s.Since).Round(time.Second).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", s.Name, s.State, pidOrNone(s.PID), s.Restarts, since, s.Message)
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	nodeIsReady, nodes := c.nodes(ctx)
	fmt.Fprintf(out, "\nKubernetes   %s, containerd %s, JobSet %s\n", c.Layout.Kubernetes.Version, layout.ContainerdVersion, layout.JobSetVersion)
	fmt.Fprintf(out, "Supervisor   process %d\n", report.PID)
	fmt.Fprintf(out, "API server   %s\n", c.Layout.Network.APIServer())
	fmt.Fprintf(out, "Nodes        %s\n", nodes)
	fmt.Fprintf(out, "Kubeconfig   %s\n", c.Layout.AdminKubeconfig())
	fmt.Fprintf(out, "Data         %s\n", c.Layout.Data)
	fmt.Fprintf(out, "Logs         %s\n\n%s\n", c.Layout.Logs(), networkPolicyNote(report))
	return report.Ready() && nodeIsReady, nil
}

func pidOrNone(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}

// byTable sorts the components in the order of component.All.
func byTable(statuses []supervisor.Status) []supervisor.Status {
	order := append(component.Names(), component.NetworkPolicies, component.GPUPlugin, component.AddonsTask)
	slices.SortStableFunc(statuses, func(a, b supervisor.Status) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
	return statuses
}

func (c *Cluster) nodes(ctx context.Context) (realReady bool, summary string) {
	client, err := c.client()
	if err != nil {
		return false, err.Error()
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err.Error()
	}
	fake, fakeReady := 0, 0
	for i := range nodes.Items {
		node := &nodes.Items[i]
		switch _, isFake := node.Labels[addon.FakeNodeLabel]; {
		case node.Name == c.Layout.Name:
			realReady = nodeReady(node)
		case isFake:
			fake++
			if nodeReady(node) {
				fakeReady++
			}
		}
	}
	word := "ready"
	if !realReady {
		word = "NOT ready"
	}
	return realReady, fmt.Sprintf("%s (%s), %d of %d fake nodes ready", c.Layout.Name, word, fakeReady, fake)
}

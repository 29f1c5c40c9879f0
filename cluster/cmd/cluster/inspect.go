// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/local"
)

func logsCommand(o *options) *cobra.Command {
	names := append(component.Names(), component.NetworkPolicies, component.GPUPlugin, "supervisor")
	var follow bool
	command := &cobra.Command{
		Use:       "logs COMPONENT",
		Short:     "Show the log of a component, including restarts",
		Long:      "Show the log of a component, including restarts. Components: " + strings.Join(names, ", ") + ".",
		Args:      cobra.ExactArgs(1),
		ValidArgs: names,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			if !slices.Contains(names, arguments[0]) {
				return fmt.Errorf("component %q does not exist; use one of: %s", arguments[0], strings.Join(names, ", "))
			}
			if _, err := c.Running(ctx); err != nil && follow {
				fmt.Fprintln(os.Stderr, "cluster: cannot follow the log:", err)
				follow = false
			}
			return printLog(ctx, os.Stdout, c.Layout.Log(arguments[0]), follow)
		}),
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "Follow the log")
	return command
}

// printLog prints the previous log, if there is one, then the current one.
func printLog(ctx context.Context, out io.Writer, path string, follow bool) error {
	if previous, err := os.Open(path + ".1"); err == nil {
		defer previous.Close()
		if _, err := io.Copy(out, previous); err != nil {
			return err
		}
	}
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return fmt.Errorf("%s does not exist: the cluster was never started", path)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		if _, err := io.Copy(out, file); err != nil || !follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
		// The log was rotated: continue at the start of the file.
		position, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if info, err := file.Stat(); err == nil && info.Size() < position {
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
	}
}

func envCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print shell settings for kubectl: eval \"$(cluster env)\"",
		Args:  cobra.NoArgs,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, _ []string) error {
			programs, err := c.Programs(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("export KUBECONFIG=%s\nexport NO_PROXY=%s\nexport PATH=%s:$PATH\n",
				c.Layout.AdminKubeconfig(), withoutProxy(c), programs.Kubernetes)
			return nil
		}),
	}
}

// withoutProxy is NO_PROXY with the addresses of the cluster.
func withoutProxy(c *local.Cluster) string {
	return strings.TrimPrefix(os.Getenv("NO_PROXY")+","+c.Layout.Network.Block.String(), ",")
}

// kubectlCommand replaces this process with kubectl, so that colors, editors and
// Ctrl-C work as usual.
func kubectlCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGUMENTS...",
		Short:              "Run the cluster's kubectl as administrator",
		DisableFlagParsing: true,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			programs, err := c.Programs(ctx)
			if err != nil {
				return err
			}
			environment := slices.DeleteFunc(os.Environ(), func(setting string) bool {
				return strings.HasPrefix(setting, "KUBECONFIG=") || strings.HasPrefix(setting, "NO_PROXY=")
			})
			environment = append(environment, "KUBECONFIG="+c.Layout.AdminKubeconfig(), "NO_PROXY="+withoutProxy(c))
			return syscall.Exec(filepath.Join(programs.Kubernetes, "kubectl"), append([]string{"kubectl"}, arguments...), environment)
		}),
	}
}

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
	names := append(component.Names(), "supervisor")
	var follow bool
	command := &cobra.Command{
		Use:       "logs COMPONENT",
		Short:     "Show what a component wrote, over all its restarts",
		Long:      "Show what a component wrote, over all its restarts. Components: " + strings.Join(names, ", ") + ".",
		Args:      cobra.ExactArgs(1),
		ValidArgs: names,
		RunE: o.onCluster(func(ctx context.Context, c *local.Cluster, arguments []string) error {
			if !slices.Contains(names, arguments[0]) {
				return fmt.Errorf("no component %q; there are: %s", arguments[0], strings.Join(names, ", "))
			}
			file, err := os.Open(c.Layout.Log(arguments[0]))
			if os.IsNotExist(err) {
				return fmt.Errorf("%s has not written anything yet: was the cluster ever up?", arguments[0])
			}
			if err != nil {
				return err
			}
			defer file.Close()
			if _, err := io.Copy(os.Stdout, file); err != nil || !follow {
				return err
			}
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(200 * time.Millisecond):
				}
				if _, err := io.Copy(os.Stdout, file); err != nil {
					return err
				}
			}
		}),
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on as more is written")
	return command
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

// withoutProxy adds the cluster to what a proxy is not asked for.
func withoutProxy(c *local.Cluster) string {
	return strings.TrimPrefix(os.Getenv("NO_PROXY")+","+c.Layout.Network.Block.String(), ",")
}

// kubectlCommand hands the terminal over to kubectl, so that colours, editors
// and Ctrl-C work as they do without us.
func kubectlCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGUMENTS...",
		Short:              "Run the cluster's kubectl as its administrator",
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

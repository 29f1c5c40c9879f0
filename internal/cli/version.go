// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"crypto/fips140"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Version is set when a release is built.
var Version = "dev"

// versions is the output of `odh version`.
type versions struct {
	Client   string `json:"client"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	FIPS140  bool   `json:"fips140"`
	// Server is the Kubernetes version of the cluster.
	Server string `json:"server,omitempty"`
}

func newVersionCommand(env *environment) *cobra.Command {
	var server bool
	var output string
	command := &cobra.Command{
		Use: "version", Short: "Print the version of odh and, with --server, of the cluster", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			v := versionOfThis()
			if server {
				if err := env.askVersion(&v); err != nil {
					return err
				}
			}
			return env.printVersions(command, v, output)
		},
	}
	command.Flags().BoolVar(&server, "server", false, "Also print the Kubernetes version of the cluster")
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml")
	return command
}

func versionOfThis() versions {
	v := versions{Client: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, FIPS140: fips140.Enabled()}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				v.Commit = setting.Value
			}
		}
	}
	return v
}

func (e *environment) askVersion(v *versions) error {
	discovery, err := e.config.ToDiscoveryClient()
	if err != nil {
		return err
	}
	version, err := discovery.ServerVersion()
	if err != nil {
		return err
	}
	v.Server = version.GitVersion
	return nil
}

func (e *environment) printVersions(command *cobra.Command, v versions, output string) error {
	switch output {
	case "":
		fmt.Fprintf(e.Out, "odh %s (%s, %s)\n", v.Client, v.Go, v.Platform)
		if v.Server != "" {
			fmt.Fprintf(e.Out, "Kubernetes %s\n", v.Server)
		}
		return nil
	case "json", "yaml":
		return e.printDocument(v, output)
	default:
		return usageFailure(command, fmt.Sprintf("--output must be json or yaml, not %q", output))
	}
}

// printDocument prints a value as JSON or YAML.
func (e *environment) printDocument(value any, output string) error {
	content, err := yaml.Marshal(value)
	if err == nil && output == "json" {
		content, err = indentedJSON(value)
	}
	if err != nil {
		return err
	}
	_, err = e.Out.Write(content)
	return err
}

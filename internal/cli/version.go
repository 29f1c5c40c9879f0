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

func newVersionCommand(environment *environment) *cobra.Command {
	var server bool
	var output string
	command := &cobra.Command{
		Use: "version", Short: "Print the version of odh and, with --server, of the cluster", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			told := versionOfThis()
			if server {
				if err := environment.askVersion(&told); err != nil {
					return err
				}
			}
			return environment.printVersions(command, told, output)
		},
	}
	command.Flags().BoolVar(&server, "server", false, "Also print the Kubernetes version of the cluster")
	command.Flags().StringVarP(&output, "output", "o", "", "Output format: json or yaml")
	return command
}

func versionOfThis() versions {
	told := versions{Client: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, FIPS140: fips140.Enabled()}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				told.Commit = setting.Value
			}
		}
	}
	return told
}

func (environment *environment) askVersion(told *versions) error {
	discovery, err := environment.config.ToDiscoveryClient()
	if err != nil {
		return err
	}
	version, err := discovery.ServerVersion()
	if err != nil {
		return err
	}
	told.Server = version.GitVersion
	return nil
}

func (environment *environment) printVersions(command *cobra.Command, told versions, output string) error {
	switch output {
	case "":
		fmt.Fprintf(environment.Out, "odh %s (%s, %s)\n", told.Client, told.Go, told.Platform)
		if told.Server != "" {
			fmt.Fprintf(environment.Out, "Kubernetes %s\n", told.Server)
		}
		return nil
	case "json", "yaml":
		return environment.printDocument(told, output)
	default:
		return usageFailure(command, fmt.Sprintf("--output must be json or yaml, not %q", output))
	}
}

// printDocument prints a value as JSON or YAML.
func (environment *environment) printDocument(value any, output string) error {
	content, err := yaml.Marshal(value)
	if err == nil && output == "json" {
		content, err = indentedJSON(value)
	}
	if err != nil {
		return err
	}
	_, err = environment.Out.Write(content)
	return err
}

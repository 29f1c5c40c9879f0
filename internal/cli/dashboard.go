// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/server/page"
)

// dashboard is `dashboard`: the local server, with a page that needs no token.
type dashboard struct {
	localServer
	noBrowser bool
}

// newDashboardCommand opens the dashboard in a browser.
func newDashboardCommand(env *environment) *cobra.Command {
	d := &dashboard{localServer: localServer{environment: env}}
	command := &cobra.Command{
		Use:   "dashboard",
		Short: "Open the dashboard in a browser",
		Long: `Open the dashboard in a browser. It is served on this machine, with your kubeconfig, until
interrupted.

The address of the page contains a code that is valid once, for two minutes: other users
of this machine cannot use the dashboard.`,
		Example: `  odh dashboard
  odh dashboard --no-browser --address 127.0.0.1:9000`,
		Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(command *cobra.Command, _ []string) error { return d.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&d.address, "address", "127.0.0.1:0", "Loopback address to listen on; port 0 chooses a free one")
	flags.BoolVar(&d.noBrowser, "no-browser", false, "Only print the address of the page")
	flags.StringVar(&d.prometheus, "prometheus-url", "", "URL of the Prometheus server with the resource usage of pods (default: use the metrics API)")
	flags.StringVar(&d.operatorNamespace, "operator-namespace", "trireme-system", "Namespace of the operator")
	return command
}

func (d *dashboard) run(ctx context.Context) error {
	namespace, err := d.namespace()
	if err != nil {
		return err
	}
	var codes *page.Codes
	return d.serve(ctx, func(token string) *page.Codes {
		codes = page.NewCodes(token, clock.RealClock{})
		return codes
	}, func(address net.Addr, _ string) { d.open(pageAddress(address, codes.New(), namespace)) })
}

// pageAddress is the address of the page. Browsers do not send the part after the #.
func pageAddress(address net.Addr, code, namespace string) string {
	return fmt.Sprintf("http://%s/#%s", address, url.Values{"code": {code}, "namespace": {namespace}}.Encode())
}

// open opens an address in a browser, and prints it for users without one.
func (d *dashboard) open(address string) {
	fmt.Fprintf(d.Out, "The dashboard is at\n\n  %s\n\nThe address can be used once, within two minutes. Press Ctrl-C to stop.\n", address)
	if d.noBrowser {
		return
	}
	if err := openBrowser(address); err != nil {
		fmt.Fprintf(d.ErrOut, "The browser was not started: %v. Open the address yourself.\n", err)
	}
}

// openBrowser opens an address through a file that only this user can read: every user of
// the machine can see the arguments of a process.
func openBrowser(address string) error {
	folder, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(folder, "odh"), 0o700); err != nil {
		return err
	}
	file := filepath.Join(folder, "odh", "dashboard.html")
	content := fmt.Sprintf("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\"><title>Trireme</title>\n", address)
	// A file of an earlier run may have other permissions.
	_ = os.Remove(file)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return err
	}
	return exec.Command(browserCommand(), file).Start()
}

func browserCommand() string {
	if runtime.GOOS == "darwin" {
		return "open"
	}
	return "xdg-open"
}

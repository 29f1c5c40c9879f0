// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

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
	var opened sync.WaitGroup
	defer opened.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return d.serve(ctx, func(token string) *page.Codes {
		codes = page.NewCodes(token, clock.RealClock{})
		return codes
	}, func(address net.Addr, _ string) {
		url := pageAddress(address, codes.New(), namespace)
		fmt.Fprintf(d.Out, "The dashboard is at\n\n  %s\n\nThe address can be used once, within two minutes. Press Ctrl-C to stop.\n", url)
		if !d.noBrowser {
			opened.Go(func() { d.open(ctx, browserCommand(), url) })
		}
	})
}

// pageAddress is the address of the page. Browsers do not send the part after the #.
func pageAddress(address net.Addr, code, namespace string) string {
	return fmt.Sprintf("http://%s/#%s", address, url.Values{"code": {code}, "namespace": {namespace}}.Encode())
}

// open opens an address in a browser, and reports why it cannot.
func (d *dashboard) open(ctx context.Context, command, address string) {
	if err := openBrowser(ctx, command, address); err != nil {
		fmt.Fprintf(d.ErrOut, "The browser was not started: %v. Open the address yourself.\n", err)
	}
}

// startTime is how long a command that cannot start a browser may take to fail. Later, it is the
// browser that has ended.
const startTime = 10 * time.Second

// openBrowser opens an address through a file that only this user can read: every user of the
// machine can see the arguments of a process. The file is removed when the code is no longer valid,
// and when the command ends.
func openBrowser(ctx context.Context, command, address string) error {
	// Browsers in a snap can read neither /tmp nor folders of the home directory whose names
	// begin with a dot.
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(home, "odh-dashboard-*.html") // with mode 0600
	if err != nil {
		return err
	}
	content := fmt.Sprintf("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\"><title>Trireme</title>\n", html.EscapeString(address))
	_, err = file.WriteString(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	browser := exec.Command(command, file.Name())
	if err := browser.Start(); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	exited := make(chan error, 1)
	go func() { exited <- browser.Wait() }()
	timer := time.NewTimer(startTime)
	defer timer.Stop()
	select {
	case err = <-exited:
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", command, err), os.Remove(file.Name()))
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	expire, cancel := context.WithTimeout(ctx, page.CodeValidity)
	defer cancel()
	<-expire.Done()
	return os.Remove(file.Name())
}

func browserCommand() string {
	if runtime.GOOS == "darwin" {
		return "open"
	}
	return "xdg-open"
}

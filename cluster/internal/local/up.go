// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/cluster/internal/addon"
	"github.com/trireme-mpi/trireme/cluster/internal/build"
	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// startPatience is the timeout for one component to become ready, on a slow and busy
// machine.
const startPatience = 90 * time.Second

// UpOptions are the options of `up`.
type UpOptions struct {
	// FakeNodes is the number of simulated nodes, FakeNodeGPUs the number of GPUs of
	// each; nil keeps the current number.
	FakeNodes    *int
	FakeNodeGPUs *int
}

// Up starts the cluster, or verifies that it is running. If the supervisor of the
// cluster was killed, a new one takes over the processes that are still running. If
// Up fails, it stops everything that it has started.
func (c *Cluster) Up(ctx context.Context, options UpOptions) error {
	return c.exclusively(ctx, func() error { return c.up(ctx, options) })
}

func (c *Cluster) up(ctx context.Context, options UpOptions) error {
	wanted := c.Layout
	report, err := c.Running(ctx)
	if err == nil {
		if c.Layout.Network != wanted.Network {
			return fmt.Errorf("the cluster is running on network %s, not %s; stop it with `down` first", c.Layout.Network.Block, wanted.Network.Block)
		}
		if running := c.Layout.Kubernetes.Release; running != wanted.Kubernetes.Release {
			return fmt.Errorf("the cluster is running Kubernetes %s, not %s; stop it with `down` first", running, wanted.Kubernetes.Release)
		}
		if c.Layout.Data != wanted.Data {
			return fmt.Errorf("the cluster is running with its data in %s, not %s; stop it with `down` first", c.Layout.Data, wanted.Data)
		}
		if wanted.NetworkPolicies && !c.Layout.NetworkPolicies {
			return errors.New("the cluster is running without --network-policies; stop it with `down` first")
		}
		c.Progress.Line("the cluster is up already (supervisor is process %d)", report.PID)
		if c.runsOtherBuild(ctx) {
			c.Progress.Line("it runs another build than that of this checkout; to change that, use `down`, then `up`")
		}
		return c.finishUp(ctx, options)
	}
	if !errors.Is(err, ErrNotRunning) {
		return err
	}
	if err := errors.Join(host.Check(c.Layout), host.CheckNetwork(c.Layout), c.Layout.CheckRelease(), c.checkPorts()); err != nil {
		return err
	}
	directories, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	takeOver := len(host.InNetworkNamespace(c.Layout.NetworkNamespace())) > 0
	if err = c.start(ctx, directories); err == nil {
		err = c.finishUp(ctx, options)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if takeOver {
		return fmt.Errorf("%w\nthe processes that were running before are not changed: `up` retries, `down` stops them", err)
	}
	c.Progress.Line("cleaning up what was started")
	// The cleanup must run even if the context has ended.
	return errors.Join(err, c.down(context.WithoutCancel(ctx)))
}

// runsOtherBuild reports whether the programs of the cluster differ from those of this
// checkout.
func (c *Cluster) runsOtherBuild(ctx context.Context) bool {
	programs, err := c.Programs(ctx)
	if err != nil {
		return false
	}
	for name, running := range map[string]string{build.Kubernetes(c.Layout): programs.Kubernetes, build.DefaultKubernetes: programs.Addons, "containerd": programs.Containerd} {
		if ours, err := build.Output(ctx, c.Layout, build.Named(c.Layout, name)); err == nil && ours != running {
			return true
		}
	}
	return false
}

// prepare installs packages and builds programs. It does not affect running processes.
func (c *Cluster) prepare(ctx context.Context) (directories map[string]string, err error) {
	step := "Debian packages"
	if c.Layout.Bundle != "" {
		step = "programs of the bundle"
	}
	err = c.Progress.Step(step, func() error { return c.installPrograms(ctx) })
	if err != nil {
		return nil, err
	}
	return c.Build(ctx)
}

// installPrograms installs the programs of the machine that are missing, and verifies
// that those of a bundle run here.
func (c *Cluster) installPrograms(ctx context.Context) error {
	folder := c.bundledHost()
	if err := host.Install(ctx, c.packageLog(), host.Runc.In(folder), host.CNI.In(folder), host.Nftables.In(folder)); err != nil {
		return err
	}
	if folder == "" {
		return nil
	}
	return errors.Join(host.Try(ctx, host.Runc.In(folder), "--version"), host.Try(ctx, host.Nftables.In(folder), "--version"))
}

// start prepares the machine and starts the supervisor.
func (c *Cluster) start(ctx context.Context, directories map[string]string) error {
	err := c.Progress.Step("network "+c.Layout.Network.Block.String(), func() error {
		return host.CreateNetwork(c.Layout)
	})
	if err != nil {
		return err
	}
	err = c.Progress.Step("certificates and configuration", func() error {
		if err := host.Claim(c.Layout.Data, 0o711); err != nil {
			return err
		}
		programs, err := c.programs(ctx, directories)
		if err != nil {
			return err
		}
		return c.writeConfiguration(programs)
	})
	if err != nil {
		return err
	}
	return c.Progress.Step("supervisor", func() error {
		if err := host.Claim(c.Layout.Run, 0o711); err != nil {
			return err
		}
		if err := host.Remember(ctx, c.Layout.MachineRecord(), c.Layout.Name, mountpoints(c.Layout)); err != nil {
			return err
		}
		if err := host.RaiseNeighborLimits(); err != nil {
			return err
		}
		if err := host.CreateCgroup(c.Layout.Name); err != nil {
			return err
		}
		return c.startSupervisor(ctx)
	})
}

func mountpoints(l layout.Layout) []string {
	var all []string
	for directory := range l.HostPaths() {
		all = append(all, directory)
	}
	slices.Sort(all)
	return all
}

// checkPorts fails if another process uses a port of the cluster. That is possible only
// if the network of an earlier cluster still exists. Components of an earlier
// supervisor are ignored: the new one stops them.
func (c *Cluster) checkPorts() error {
	if _, err := os.Stat(c.Layout.NetworkNamespace()); err != nil {
		return nil
	}
	ports := layout.Ports()
	holders, err := host.PortHolders(c.Layout, ports)
	if err != nil {
		return err
	}
	var taken []error
	for _, port := range ports {
		holder, held := holders[port]
		if held && !supervisor.IsComponent(c.Layout, holder) {
			taken = append(taken, fmt.Errorf("port %d of the cluster's network is in use by %s; stop that process and retry",
				port, host.Describe(holder)))
		}
	}
	return errors.Join(taken...)
}

// finishUp waits until the cluster is ready, and applies the options.
func (c *Cluster) finishUp(ctx context.Context, options UpOptions) error {
	for _, name := range c.wanted() {
		if err := c.Progress.Step(name, func() error { return c.awaitComponent(ctx, name) }); err != nil {
			return err
		}
	}
	if err := c.Progress.Step("pause image", func() error { return c.loadPause(ctx) }); err != nil {
		return err
	}
	if err := c.Progress.Step("node ready", func() error { return c.awaitNode(ctx) }); err != nil {
		return err
	}
	if options.FakeNodes == nil && options.FakeNodeGPUs == nil {
		return nil
	}
	return c.Progress.Step("fake nodes", func() error { return c.setFakeNodes(ctx, options) })
}

// wanted lists the components and tasks that must be ready.
func (c *Cluster) wanted() []string {
	var names []string
	for _, component := range component.All(c.Layout, component.Programs{}) {
		if component.IsWanted() {
			names = append(names, component.Name)
		}
	}
	return append(names, component.AddonsTask)
}

// setFakeNodes changes only the numbers that the options set.
func (c *Cluster) setFakeNodes(ctx context.Context, options UpOptions) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	count, gpus, err := addon.CurrentFakeNodes(ctx, client)
	if err != nil {
		return err
	}
	if options.FakeNodes != nil {
		count = *options.FakeNodes
	}
	if options.FakeNodeGPUs != nil {
		gpus = *options.FakeNodeGPUs
	}
	c.Progress.Note("%d with %d GPUs each", count, gpus)
	if err := addon.FakeNodes(ctx, client, count, gpus); err != nil {
		return err
	}
	return c.awaitFakeNodes(ctx, count)
}

// awaitComponent waits until a component is ready. The error contains the end of its
// log.
func (c *Cluster) awaitComponent(ctx context.Context, name string) error {
	var last supervisor.Status
	err := poll(ctx, startPatience, func() (bool, error) {
		report, err := c.Running(ctx)
		if errors.Is(err, ErrNotRunning) {
			return false, fmt.Errorf("the supervisor exited:\n%s", logTail(c.Layout.Log("supervisor")))
		}
		for _, status := range report.Components {
			if status.Name == name {
				last = status
			}
		}
		return last.State == supervisor.Ready, nil
	})
	if errors.Is(err, errPatience) {
		log := c.Layout.Log(name)
		if name == component.AddonsTask {
			log = c.Layout.Log("supervisor")
		}
		return fmt.Errorf("%s is %s after %s (%s); the end of %s:\n%s", name, last.State, startPatience, last.Message, log, logTail(log))
	}
	return err
}

func (c *Cluster) awaitNode(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	err = poll(ctx, startPatience, func() (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, c.Layout.Name, metav1.GetOptions{})
		return err == nil && nodeReady(node), nil
	})
	if errors.Is(err, errPatience) {
		log := c.Layout.Log("kubelet")
		return fmt.Errorf("node %s is not ready after %s; the end of %s:\n%s", c.Layout.Name, startPatience, log, logTail(log))
	}
	return err
}

func (c *Cluster) awaitFakeNodes(ctx context.Context, count int) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ready := 0
	err = poll(ctx, startPatience, func() (bool, error) {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: addon.FakeNodeLabel})
		if err != nil {
			return false, nil
		}
		ready = 0
		for i := range nodes.Items {
			if nodeReady(&nodes.Items[i]) {
				ready++
			}
		}
		return ready == count && len(nodes.Items) == count, nil
	})
	if errors.Is(err, errPatience) {
		return fmt.Errorf("%d of %d fake nodes are ready after %s; see `logs kwok`", ready, count, startPatience)
	}
	return err
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

var errPatience = errors.New("timeout")

// poll calls ask until it returns true or an error, or until the timeout.
func poll(ctx context.Context, patience time.Duration, ask func() (bool, error)) error {
	deadline := time.Now().Add(patience)
	for {
		done, err := ask()
		if done || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errPatience
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func logTail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "    (no log yet)"
	}
	return host.Tail(string(content), 12)
}

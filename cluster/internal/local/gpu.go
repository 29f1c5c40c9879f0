// SPDX-License-Identifier: Apache-2.0

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/cluster/internal/build"
	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
)

// gpuResource is the resource that pods request.
const gpuResource = "nvidia.com/gpu"

// GPUUp builds NVIDIA's device plugin if it is not in the cache, starts it in the running
// cluster, and waits until the node has GPUs. It starts again with the cluster. Without
// libraries, pods get only the device files of their GPUs.
func (c *Cluster) GPUUp(ctx context.Context, libraries bool) (gpus int64, err error) {
	err = c.exclusively(ctx, func() error {
		if _, err := c.Running(ctx); err != nil {
			return err
		}
		if devices, _ := filepath.Glob("/dev/nvidia[0-9]*"); len(devices) == 0 {
			return errors.New("this machine has no /dev/nvidia0: install NVIDIA's driver, and load its module with nvidia-smi")
		}
		directory, err := c.gpuPrograms(ctx)
		if err != nil {
			return err
		}
		changed, err := c.configureGPUPlugin(libraries)
		if err != nil {
			return err
		}
		for _, link := range []string{c.Layout.GPUHook(), c.Layout.GPUPlugin()} {
			if err := relink(filepath.Join(directory, filepath.Base(link)), link); err != nil {
				return fmt.Errorf("programs of NVIDIA: %w", err)
			}
		}
		err = c.Progress.Step(component.GPUPlugin, func() error {
			if changed {
				if err := c.restart(ctx, component.GPUPlugin); err != nil {
					return err
				}
			}
			return c.awaitComponent(ctx, component.GPUPlugin)
		})
		if err != nil {
			return err
		}
		return c.Progress.Step("GPUs of the node", func() error {
			gpus, err = c.awaitGPUs(ctx)
			return err
		})
	})
	return gpus, err
}

// gpuPrograms builds the device plugin, for which the machine needs a C compiler.
func (c *Cluster) gpuPrograms(ctx context.Context) (string, error) {
	if c.Layout.Bundle == "" {
		if err := host.Install(ctx, c.packageLog(), host.CCompiler); err != nil {
			return "", err
		}
	}
	return c.buildModule(ctx, build.NVIDIA(c.Layout))
}

// configureGPUPlugin writes the configuration of the plugin, and reports whether a plugin
// with another one is running.
func (c *Cluster) configureGPUPlugin(libraries bool) (changed bool, err error) {
	file := c.Layout.GPUConfig()
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	_, stopped := os.Stat(c.Layout.GPUPlugin())
	config := gpuPluginConfig(libraries)
	return stopped == nil && !bytes.Equal(before, config), writeFiles(map[string][]byte{file: config})
}

// gpuPluginConfig is the configuration of the plugin. With libraries, containerd adds the
// driver's libraries of this machine to the containers (CDI).
func gpuPluginConfig(libraries bool) []byte {
	strategy, onlyDevices := "cdi-cri", false
	if !libraries {
		strategy, onlyDevices = "envvar", true
	}
	return fmt.Appendf(nil, `version: v1
flags:
  migStrategy: none
  failOnInitError: true
  plugin:
    deviceListStrategy: [%s]
    passDeviceSpecs: %t
`, strategy, onlyDevices)
}

func (c *Cluster) awaitGPUs(ctx context.Context) (gpus int64, err error) {
	client, err := c.client()
	if err != nil {
		return 0, err
	}
	err = poll(ctx, startPatience, func() (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, c.Layout.Name, metav1.GetOptions{})
		if err == nil {
			quantity := node.Status.Allocatable[gpuResource]
			gpus = quantity.Value()
		}
		return gpus > 0, nil
	})
	if errors.Is(err, errPatience) {
		log := c.Layout.Log(component.GPUPlugin)
		return 0, fmt.Errorf("node %s has no %s after %s; the end of %s:\n%s", c.Layout.Name, gpuResource, startPatience, log, logTail(log))
	}
	return gpus, err
}

// GPUDown stops the device plugin. Pods that have GPUs keep them.
func (c *Cluster) GPUDown(ctx context.Context) error {
	return c.exclusively(ctx, func() error {
		return c.Progress.Step("stop "+component.GPUPlugin, func() error {
			if err := os.Remove(c.Layout.GPUPlugin()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			err := poll(ctx, startPatience, func() (bool, error) {
				report, err := c.Running(ctx)
				if errors.Is(err, ErrNotRunning) {
					return true, nil
				}
				for _, status := range report.Components {
					if status.Name == component.GPUPlugin {
						return false, err
					}
				}
				return err == nil, err
			})
			if errors.Is(err, errPatience) {
				return fmt.Errorf("%s is still running after %s; see `logs supervisor`", component.GPUPlugin, startPatience)
			}
			return err
		})
	})
}

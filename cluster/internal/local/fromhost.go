// SPDX-License-Identifier: Apache-2.0

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/trireme-mpi/trireme/cluster/image"
	"github.com/trireme-mpi/trireme/cluster/internal/build"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// hostFiles is the record that the program hostfiles reads: the images whose containers
// see directories of the machine, and the runc that runs them.
type hostFiles struct {
	Runc   string              `json:"runc"`
	Images map[string][]string `json:"images"`
}

// ImageFromHost loads an image of the machine's own programs. Nothing is copied except
// settings: containers see the directories of the machine, read-only. Without
// directories, these are /usr and the folders in /opt.
func (c *Cluster) ImageFromHost(ctx context.Context, reference string, directories []string) error {
	if len(directories) == 0 {
		directories = programDirectories()
	}
	for _, directory := range directories {
		info, err := os.Stat(directory)
		if !filepath.IsAbs(directory) || err != nil || !info.IsDir() {
			return errors.Join(fmt.Errorf("%s must be the absolute path of a directory", directory), err)
		}
	}
	return c.exclusively(ctx, func() error {
		if _, err := c.Running(ctx); err != nil {
			return err
		}
		if err := c.recordHostFiles(ctx, reference, directories); err != nil {
			return fmt.Errorf("image %s: %w", reference, err)
		}
		return c.Progress.Step("image "+reference, func() error {
			c.Progress.Note("%s", strings.Join(directories, " "))
			archive := filepath.Join(c.Layout.Data, "host-image.tar")
			defer os.Remove(archive)
			if err := image.FromHost("/", directories, image.HostEnvironment(os.Getenv), reference, archive); err != nil {
				return err
			}
			return c.importImage(ctx, archive)
		})
	})
}

// programDirectories are /usr and the folders in /opt: /opt itself has to stay writable
// for mounts, such as that of Trireme's agent.
func programDirectories() []string {
	directories := []string{"/usr"}
	entries, err := os.ReadDir("/opt")
	if err != nil {
		return directories
	}
	for _, entry := range entries {
		if entry.IsDir() && entry.Name() != "trireme" {
			directories = append(directories, filepath.Join("/opt", entry.Name()))
		}
	}
	return directories
}

func (c *Cluster) hostFilesPrograms(ctx context.Context) (string, error) {
	return c.buildModule(ctx, build.HostFiles(c.Layout))
}

// linkHostFilesRuntime builds the program that mounts directories of the machine if it is
// not in the cache, and links it into the data directory, where it finds the record.
func (c *Cluster) linkHostFilesRuntime(ctx context.Context) error {
	directory, err := c.hostFilesPrograms(ctx)
	if err != nil {
		return err
	}
	link := c.Layout.HostFilesRuntime()
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	return relink(filepath.Join(directory, filepath.Base(link)), link)
}

// recordHostFiles adds an image to the record, and lets containerd use the program that
// reads it.
func (c *Cluster) recordHostFiles(ctx context.Context, reference string, directories []string) error {
	if err := c.linkHostFilesRuntime(ctx); err != nil {
		return err
	}
	programs, err := c.Programs(ctx)
	if err != nil {
		return err
	}
	record, err := readHostFiles(c.Layout.HostFiles())
	if err != nil {
		return err
	}
	if programs.Runc != c.Layout.HostFilesRuntime() {
		record.Runc = programs.Runc
	}
	record.Images[reference] = directories
	if err := writeHostFiles(c.Layout.HostFiles(), record); err != nil || programs.Runc == c.Layout.HostFilesRuntime() {
		return err
	}
	programs.Runc = c.Layout.HostFilesRuntime()
	if err := c.writeConfiguration(programs); err != nil {
		return err
	}
	return c.Progress.Step("restart containerd", func() error { return c.restart(ctx, "containerd") })
}

func readHostFiles(file string) (hostFiles, error) {
	record := hostFiles{Images: map[string][]string{}}
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &record)
	}
	return record, err
}

// writeHostFiles replaces the record: containers may be starting.
func writeHostFiles(file string, record hostFiles) error {
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// runtime is the program that containerd runs for containers: runc, or the program that
// mounts directories of the machine if there are images that need it. These stay after
// `reset`, which deletes the link to the program.
func (c *Cluster) runtime(ctx context.Context, runc string) (string, error) {
	record, err := readHostFiles(c.Layout.HostFiles())
	if err != nil || len(record.Images) == 0 {
		return runc, err
	}
	if err := c.linkHostFilesRuntime(ctx); err != nil {
		return "", err
	}
	record.Runc = runc
	return c.Layout.HostFilesRuntime(), writeHostFiles(c.Layout.HostFiles(), record)
}

// restart ends a component, which the supervisor then starts again, and waits until it is
// ready.
func (c *Cluster) restart(ctx context.Context, name string) error {
	pid := func() (int, error) {
		report, err := c.Running(ctx)
		at := slices.IndexFunc(report.Components, func(status supervisor.Status) bool { return status.Name == name })
		if err != nil || at < 0 {
			return 0, err
		}
		return report.Components[at].PID, nil
	}
	before, err := pid()
	if err != nil || before == 0 {
		return errors.Join(fmt.Errorf("%s is not running", name), err)
	}
	if err := syscall.Kill(before, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end %s: %w", name, err)
	}
	err = poll(ctx, startPatience, func() (bool, error) {
		now, err := pid()
		return now != 0 && now != before, err
	})
	if err != nil {
		return fmt.Errorf("restart %s: %w", name, err)
	}
	return c.awaitComponent(ctx, name)
}

// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// maxSetting is the largest file of /etc that is copied: programs' settings are small.
const maxSetting = 1 << 20

// machineFiles of /etc describe the machine itself, or are written by the kubelet.
var machineFiles = []string{"fstab", "hostname", "hosts", "machine-id", "mtab", "resolv.conf"}

// FromHost writes to outPath the tar of an image of a machine's programs, without the
// programs: the directories are empty in it, and are mounted when a container starts. It
// contains the links of the root directory, such as /lib, and the files of /etc that
// every user of the machine may read. Root is the machine's root directory.
func FromHost(root string, directories, env []string, ref, outPath string) error {
	layerPath := outPath + ".layer"
	defer os.Remove(layerPath)
	if err := writeGzip(layerPath, func(w io.Writer) error { return writeSkeleton(w, root, directories) }); err != nil {
		return fmt.Errorf("build image %s: %w", ref, err)
	}
	layer, err := tarball.LayerFromFile(layerPath)
	if err != nil {
		return fmt.Errorf("build image %s: %w", ref, err)
	}
	built, err := Assemble([]v1.Layer{layer}, runtime.GOARCH, v1.Config{Env: env, Cmd: []string{"sh"}, User: Nonroot})
	if err != nil {
		return fmt.Errorf("build image %s: %w", ref, err)
	}
	return writeTar(outPath, built, ref)
}

func writeSkeleton(w io.Writer, root string, directories []string) error {
	layer := tar.NewWriter(w)
	for _, name := range folders(directories) {
		mode := int64(0o755)
		if name == "tmp" {
			mode = 0o1777
		}
		if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}); err != nil {
			return err
		}
	}
	if err := appendRootLinks(layer, root); err != nil {
		return err
	}
	if err := appendSettings(layer, root); err != nil {
		return err
	}
	return layer.Close()
}

// folders are those of the image, parents first.
func folders(directories []string) []string {
	names := []string{"etc", "tmp", "var", "var/tmp", "run"}
	for _, directory := range directories {
		for name := strings.Trim(path.Clean(directory), "/"); name != "" && name != "."; name = parent(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func parent(name string) string {
	above, _ := path.Split(name)
	return strings.TrimSuffix(above, "/")
}

// appendRootLinks adds links such as /lib -> usr/lib.
func appendRootLinks(layer *tar.Writer, root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Type()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := os.Readlink(filepath.Join(root, entry.Name()))
		if err != nil {
			return err
		}
		if !strings.HasPrefix(strings.TrimPrefix(target, "/"), "usr/") {
			continue
		}
		if err := layer.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: entry.Name(), Linkname: target}); err != nil {
			return err
		}
	}
	return nil
}

// appendSettings adds the files and links of /etc that every user may read.
func appendSettings(layer *tar.Writer, root string) error {
	return filepath.WalkDir(filepath.Join(root, "etc"), func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil || name == "etc" || slices.Contains(machineFiles, strings.TrimPrefix(name, "etc/")) {
			return err
		}
		switch {
		case entry.IsDir():
			if info.Mode()&0o5 != 0o5 {
				return filepath.SkipDir
			}
			return layer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755})
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			return layer.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target})
		case info.Mode().IsRegular() && info.Mode()&0o4 != 0 && info.Size() <= maxSetting:
			return appendHostFile(layer, name, int64(info.Mode().Perm()), file)
		}
		return nil
	})
}

// HostEnvironment is the environment of an image of a machine: the paths of the user who
// makes it, and a home that any user can write to.
func HostEnvironment(get func(string) string) []string {
	env := []string{"HOME=/tmp", "SHELL=/bin/sh"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH"} {
		if value := get(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// wheelPrefix is where the files of wheels go. Debian's python3 and sshd look
// there by themselves, so that a login over ssh, which does not see the
// environment of the image, finds the commands and modules as well.
const wheelPrefix = "/usr/local"

// downloadWheels uses the host's pip, and with it the host's package index,
// proxy and certificates.
func downloadWheels(ctx context.Context, def Definition, dir string, log io.Writer) error {
	if def.Python == "" {
		return errors.New("the definition has wheels but no Python version")
	}
	err := run(ctx, downloadCommand(def, dir), nil, log)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("download %s: %w; check the connection to the package index and the pinned versions",
			strings.Join(def.Pip, ", "), err)
	}
	return err
}

// downloadCommand selects wheels for the python3 of the image, which need not
// be the host's. It downloads only: "pip install --target" drops the shared
// libraries that wheels of MPI runtimes have for the prefix's lib directory.
func downloadCommand(def Definition, dir string) []string {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	command := []string{
		"python3", "-m", "pip", "download",
		"--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--progress-bar=off",
		"--implementation=cp", "--python-version=" + def.Python,
	}
	for _, libc := range []string{"manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux1"} {
		command = append(command, "--platform="+libc+"_"+machine)
	}
	command = append(command, "--dest="+dir)
	return append(command, def.Pip...)
}

// writeWheelLayer unpacks all wheels in dir into one compressed layer.
func writeWheelLayer(file, dir string, def Definition) error {
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return err
	}
	return writeGzip(file, func(w io.Writer) error {
		layer := tar.NewWriter(w)
		for _, wheel := range wheels {
			if err := appendWheel(layer, wheel, def); err != nil {
				return fmt.Errorf("unpack %s: %w", filepath.Base(wheel), err)
			}
		}
		return layer.Close()
	})
}

func appendWheel(layer *tar.Writer, wheel string, def Definition) error {
	archive, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, file := range archive.File {
		if file.FileInfo().IsDir() {
			continue
		}
		target, err := installPath(file.Name, def.Python)
		if err != nil {
			return err
		}
		excluded, err := matchesAny(def.Exclude, target)
		if err != nil {
			return err
		}
		if excluded {
			continue
		}
		if err := appendWheelFile(layer, strings.TrimPrefix(target, "/"), file); err != nil {
			return fmt.Errorf("%s: %w", file.Name, err)
		}
	}
	return nil
}

// installPath tells where a file of a wheel goes. In a wheel
// "NAME-VERSION.data/KIND/..." names a place by its kind; all else are Python
// modules.
func installPath(file, python string) (string, error) {
	if !fs.ValidPath(file) {
		return "", fmt.Errorf("path %q is outside of the wheel", file)
	}
	modules := path.Join(wheelPrefix, "lib/python"+python, "dist-packages")
	top, rest, _ := strings.Cut(file, "/")
	if !strings.HasSuffix(top, ".data") {
		return path.Join(modules, file), nil
	}
	switch kind, name, _ := strings.Cut(rest, "/"); kind {
	case "data":
		return path.Join(wheelPrefix, name), nil
	case "purelib", "platlib":
		return path.Join(modules, name), nil
	default:
		return "", fmt.Errorf("%s: files of kind %q are not supported", file, kind)
	}
}

func matchesAny(patterns []string, name string) (bool, error) {
	for _, pattern := range patterns {
		if matched, err := path.Match(pattern, name); matched || err != nil {
			return matched, err
		}
	}
	return false, nil
}

func appendWheelFile(layer *tar.Writer, target string, file *zip.File) error {
	content, err := file.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	mode := int64(0o644)
	if file.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return appendFile(layer, target, mode, int64(file.UncompressedSize64), content)
}

// appendFile adds a file of root with a fixed time, so that equal content gives
// an equal layer.
func appendFile(layer *tar.Writer, target string, mode, size int64, content io.Reader) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     target,
		Mode:     mode,
		Size:     size,
		ModTime:  time.Unix(0, 0),
	}
	if err := layer.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(layer, content)
	return err
}

// appendHostFile adds a file of the host.
func appendHostFile(layer *tar.Writer, target string, mode int64, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return appendFile(layer, target, mode, info.Size(), file)
}

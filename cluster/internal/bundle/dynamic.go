// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// launcher starts a program with the loader and the libraries beside it, so that it
// runs on a machine with other libraries, or another C library.
const launcher = `#!/bin/sh
directory=$(cd "$(dirname "$0")" && pwd)/%[1]s.d
exec "$directory/%[2]s" --library-path "$directory" "$directory/%[1]s" "$@"
`

// AddDynamic adds a program with its loader and libraries in the folder NAME.d, and a
// script that starts it. Scratch is a folder for the script, which must exist until the
// bundle is written. It does not work for programs that start themselves again.
func (c Content) AddDynamic(ctx context.Context, name, program, scratch string) error {
	output, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", program, err)
	}
	base := filepath.Base(name)
	loader := ""
	for _, library := range libraries(string(output)) {
		c[filepath.Join(name+".d", filepath.Base(library))] = resolved(library)
		if strings.HasPrefix(filepath.Base(library), "ld-") {
			loader = filepath.Base(library)
		}
	}
	if loader == "" {
		return fmt.Errorf("ldd names no loader for %s", program)
	}
	script := filepath.Join(scratch, base)
	if err := os.WriteFile(script, fmt.Appendf(nil, launcher, base, loader), 0o755); err != nil {
		return err
	}
	c[filepath.Join(name+".d", base)] = resolved(program)
	c[name] = script
	return nil
}

// resolved follows links: the bundle contains the library itself, under the name that
// programs look for.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// libraries are the paths in the output of ldd, including that of the loader:
//
//	libmnl.so.0 => /lib/x86_64-linux-gnu/libmnl.so.0 (0x00007f0539698000)
//	/lib64/ld-linux-x86-64.so.2 (0x00007f05399e7000)
func libraries(output string) (paths []string) {
	for lines := bufio.NewScanner(strings.NewReader(output)); lines.Scan(); {
		for _, field := range strings.Fields(lines.Text()) {
			if strings.HasPrefix(field, "/") {
				paths = append(paths, field)
			}
		}
	}
	return paths
}

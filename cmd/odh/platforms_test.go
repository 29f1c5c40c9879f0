// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherPlatforms checks the types of odh for macOS and Windows: a compiler needs more
// than five minutes of CPU time for each, this test about six seconds. make test-all
// compiles all platforms.
func TestOtherPlatforms(t *testing.T) {
	for _, platform := range []string{"darwin/arm64", "windows/amd64"} {
		t.Run(platform, func(t *testing.T) {
			system, architecture, _ := strings.Cut(platform, "/")
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap", ".")
			list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)
			list.Stderr = os.Stderr
			output, err := list.Output()
			if err != nil {
				t.Fatal(err)
			}
			all := checked{"unsafe": types.Unsafe}
			// Every package is after those that it imports.
			for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
				var one listedPackage
				if err := decoder.Decode(&one); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if err := all.add(one, types.SizesFor("gc", architecture)); err != nil {
					t.Fatalf("%s does not compile for %s: %v", one.ImportPath, platform, err)
				}
			}
		})
	}
}

// listedPackage is a package as go list prints it.
type listedPackage struct {
	ImportPath, Dir string
	GoFiles         []string
	// ImportMap has the packages that the standard library vendors.
	ImportMap map[string]string
}

// checked has the types of packages by import path.
type checked map[string]*types.Package

func (c checked) add(one listedPackage, sizes types.Sizes) error {
	if one.ImportPath == "unsafe" {
		return nil
	}
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range one.GoFiles {
		file, err := parser.ParseFile(files, filepath.Join(one.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		parsed = append(parsed, file)
	}
	config := types.Config{
		Sizes: sizes,
		// Other modules compile on these systems; what they declare is all that is needed.
		IgnoreFuncBodies: !strings.HasPrefix(one.ImportPath, "github.com/trireme-mpi/"),
		Importer: importerFunc(func(path string) (*types.Package, error) {
			if mapped, found := one.ImportMap[path]; found {
				path = mapped
			}
			if imported := c[path]; imported != nil {
				return imported, nil
			}
			return nil, fmt.Errorf("go list does not print %s before %s", path, one.ImportPath)
		}),
	}
	var err error
	c[one.ImportPath], err = config.Check(one.ImportPath, files, parsed, nil)
	return err
}

type importerFunc func(path string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

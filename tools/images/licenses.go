// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// licenseFolder is where OpenShift's certification looks for licences.
const licenseFolder = "licenses"

var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([._-].*)?$`)

// goPackage is a package as go list prints it.
type goPackage struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct{ Path, Dir string }
}

// licenseFiles returns the licences of everything that is linked into a program: paths in
// the image or archive, with the paths of the files on this machine.
func licenseFiles(ctx context.Context, s settings, p platform, program string) (map[string]string, error) {
	env := goEnvironment(p, s.fips)
	listed, err := output(ctx, s.repository, env, "go", "list", "-deps", "-json=ImportPath,Dir,Standard,Module", "./cmd/"+program)
	if err != nil {
		return nil, err
	}
	root, err := output(ctx, s.repository, env, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	if err := addLicenses(files, "go", strings.TrimSpace(string(root)), strings.TrimSpace(string(root))); err != nil {
		return nil, err
	}
	for packages := json.NewDecoder(bytes.NewReader(listed)); ; {
		var one goPackage
		if err := packages.Decode(&one); errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the output of go list: %w", err)
		}
		if one.Standard {
			continue
		}
		if err := addLicenses(files, one.Module.Path, one.Module.Dir, one.Dir); err != nil {
			return nil, err
		}
		if one.ImportPath == pagePackage {
			report, err := npmReport(s.repository)
			if err != nil {
				return nil, err
			}
			if report != "" {
				files[npmLicenses] = report
			}
		}
	}
}

// addLicenses adds the licences of a package: those in its folder and in the folders
// above it, up to that of its module.
func addLicenses(files map[string]string, module, moduleFolder, folder string) error {
	found := false
	for ; ; folder = filepath.Dir(folder) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return fmt.Errorf("licences of %s: %w", module, err)
		}
		relative, err := filepath.Rel(moduleFolder, folder)
		if err != nil || strings.HasPrefix(relative, "..") {
			return fmt.Errorf("licences of %s: %s is not in %s", module, folder, moduleFolder)
		}
		for _, entry := range entries {
			if entry.Type().IsRegular() && licenseName.MatchString(entry.Name()) && filepath.Ext(entry.Name()) != ".go" {
				files[path.Join(licenseFolder, module, filepath.ToSlash(relative), entry.Name())] = filepath.Join(folder, entry.Name())
				found = true
			}
		}
		if folder == moduleFolder {
			break
		}
	}
	if !found {
		return fmt.Errorf("module %s has no licence file: a release must not contain it", module)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// pagePackage is the Go package that embeds the dashboard.
	pagePackage = "github.com/trireme-mpi/trireme/web"
	// npmLicenses is the file in an image or archive with the licences of the npm packages
	// that are part of the dashboard.
	npmLicenses = licenseFolder + "/npm/licenses.md"
)

// npmReport returns the file in which Vite lists the npm packages that it has built into
// the dashboard, with their licences. It is empty if the dashboard was not built: then
// programs do not contain it.
func npmReport(repository string) (string, error) {
	page := filepath.Join(repository, "web/dist/page")
	if _, err := os.Stat(filepath.Join(page, "index.html")); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	report := filepath.Join(page, "licenses.md")
	if _, err := os.Stat(report); err != nil {
		return "", fmt.Errorf("licences of the dashboard: %w: delete web/dist/page and run make web", err)
	}
	return report, nil
}

// npmHeading is the heading of a package: its name, its version and the name of its
// licence.
var npmHeading = regexp.MustCompile(`^## (\S+) - (\S+)(?: \(.+\))?$`)

// npmComponents are the packages of a report. All of them must be in the lock file, and
// have a licence.
func npmComponents(report, lockFile string) ([]component, error) {
	checksums, err := npmChecksums(lockFile)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(report)
	if err != nil {
		return nil, err
	}
	var components []component
	licensed := true // what is before the first heading belongs to no package
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\r\n")
		heading := npmHeading.FindStringSubmatch(line)
		if heading == nil {
			licensed = licensed || line != ""
			continue
		}
		if !licensed {
			break
		}
		name, version := heading[1], heading[2]
		checksum, found := checksums[name+"@"+version]
		if !found {
			return nil, fmt.Errorf("the dashboard contains npm package %s %s, which is not in %s: run make web", name, version, lockFile)
		}
		if checksum == "" {
			return nil, fmt.Errorf("npm package %s %s has no SHA-512 checksum in %s", name, version, lockFile)
		}
		components = append(components, component{
			name: name, version: version, purl: purl("npm", strings.Replace(name, "@", "%40", 1), version), sha512: checksum,
		})
		licensed = false
	}
	if len(components) == 0 {
		return nil, fmt.Errorf("%s lists no npm packages", report)
	}
	if last := components[len(components)-1]; !licensed {
		return nil, fmt.Errorf("npm package %s %s has no licence file: a release must not contain it", last.name, last.version)
	}
	return components, nil
}

// npmChecksums returns the SHA-512 checksums of the archives of all packages in a lock file,
// by name@version and in hexadecimal digits. Those of packages without one are empty.
func npmChecksums(lockFile string) (map[string]string, error) {
	content, err := os.ReadFile(lockFile)
	if err != nil {
		return nil, err
	}
	var lock struct {
		Packages map[string]struct {
			// Name is set if it differs from the folder.
			Name, Version, Integrity string
		}
	}
	if err := json.Unmarshal(content, &lock); err != nil {
		return nil, fmt.Errorf("read %s: %w", lockFile, err)
	}
	checksums := map[string]string{}
	for folder, one := range lock.Packages {
		const modules = "node_modules/"
		at := strings.LastIndex(folder, modules)
		if at < 0 {
			continue // the dashboard itself
		}
		name := one.Name
		if name == "" {
			name = folder[at+len(modules):]
		}
		encoded, found := strings.CutPrefix(one.Integrity, "sha512-")
		sum, err := base64.StdEncoding.DecodeString(encoded)
		if !found || err != nil {
			sum = nil // what only builds the dashboard needs none
		}
		checksums[name+"@"+one.Version] = hex.EncodeToString(sum)
	}
	return checksums, nil
}

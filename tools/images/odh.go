// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// odhPlatforms are the platforms of the command line.
var odhPlatforms = []platform{
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"linux", "amd64"}, {"linux", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// odhArchive is the command line for one platform.
type odhArchive struct {
	platform     platform
	name, digest string
}

// program is the file name of the command line.
func (p platform) program() string {
	if p.os == "windows" {
		return "odh.exe"
	}
	return "odh"
}

func (p platform) archive(tag string) string {
	if p.os == "windows" {
		return fmt.Sprintf("odh-%s-%s.zip", tag, p)
	}
	return fmt.Sprintf("odh-%s-%s.tar.gz", tag, p)
}

// buildODH writes the archive and the SBOM of the command line for one platform.
func buildODH(ctx context.Context, from source, s settings, p platform) (built odhArchive, err error) {
	work, err := os.MkdirTemp("", "odh-")
	if err != nil {
		return odhArchive{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := compile(ctx, s, p, work, []string{"odh"}); err != nil {
		return odhArchive{}, err
	}
	licenses, err := licenseFiles(ctx, s, p, "odh")
	if err != nil {
		return odhArchive{}, err
	}
	// No links for the plugins: krew refuses archives with links, and creates its own.
	binary := filepath.Join(work, p.program())
	files := map[string]entry{
		p.program(): {binary, 0o755},
		"LICENSE":   {filepath.Join(s.repository, "LICENSE"), 0o644},
	}
	for name, path := range licenses {
		files[name] = entry{path, 0o644}
	}
	built = odhArchive{platform: p, name: p.archive(s.tag())}
	file := filepath.Join(s.output, built.name)
	if err := writeArchive(file, files, from.time); err != nil {
		return odhArchive{}, err
	}
	if built.digest, err = fileDigest(file); err != nil {
		return odhArchive{}, err
	}
	components, err := programComponents(s, binary, licenses)
	if err != nil {
		return odhArchive{}, err
	}
	subject := sbomSubject{"Archive", built.name, s.version, purl("generic", "odh", s.version), v1.Hash{Algorithm: "sha256", Hex: built.digest}}
	bill, err := sbom(subject, from.time, components)
	if err != nil {
		return odhArchive{}, err
	}
	return built, os.WriteFile(filepath.Join(s.output, fmt.Sprintf("odh-%s-%s.spdx.json", s.tag(), p)), bill, 0o644)
}

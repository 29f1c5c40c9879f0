// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bufio"
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// component is a Go module, an npm package or a Debian package in an image.
type component struct {
	name, version string
	// purl identifies it for scanners: https://github.com/package-url/purl-spec.
	purl string
	// dirHash is the checksum of a Go module, in hexadecimal digits.
	dirHash string
	// sha512 is the checksum of the archive of an npm package, in hexadecimal digits.
	sha512 string
}

// programComponents are the components of a program that contains these licences.
func programComponents(s settings, binary string, licenses map[string]string) ([]component, error) {
	components, err := goComponents(binary, s.version)
	if err != nil {
		return nil, err
	}
	report, found := licenses[npmLicenses]
	if !found {
		return components, nil
	}
	packages, err := npmComponents(report, filepath.Join(s.repository, "web/package-lock.json"))
	return append(components, packages...), err
}

// goComponents are the modules that are linked into a program, and Go itself.
func goComponents(binary, version string) ([]component, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("read the modules of %s: %w", binary, err)
	}
	components := []component{
		{name: info.Main.Path, version: version, purl: purl("golang", info.Main.Path, version)},
		{name: "stdlib", version: info.GoVersion, purl: purl("golang", "stdlib", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, module := range info.Deps {
		one, err := goModule(module)
		if err != nil {
			return nil, fmt.Errorf("modules of %s: %w", binary, err)
		}
		components = append(components, one)
	}
	return components, nil
}

func goModule(module *debug.Module) (component, error) {
	if module.Replace != nil {
		module = module.Replace
	}
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
	if err != nil || len(sum) == 0 {
		return component{}, fmt.Errorf("module %s has no checksum (%q): a release cannot contain modules of this machine", module.Path, module.Sum)
	}
	return component{
		name: module.Path, version: module.Version,
		purl: purl("golang", module.Path, module.Version), dirHash: hex.EncodeToString(sum),
	}, nil
}

// debianComponents are the packages that an image of the cluster tool describes.
func debianComponents(image v1.Image) ([]component, error) {
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	var components []component
	for _, layer := range layers {
		content, err := layer.Uncompressed()
		if err != nil {
			return nil, err
		}
		found, err := debianPackages(content)
		if err := errors.Join(err, content.Close()); err != nil {
			return nil, fmt.Errorf("read the packages: %w", err)
		}
		components = append(components, found...)
	}
	if len(components) == 0 {
		return nil, errors.New("the image has no packages in /var/lib/dpkg/status.d")
	}
	slices.SortFunc(components, func(a, b component) int { return cmp.Compare(a.name, b.name) })
	return components, nil
}

func debianPackages(layer io.Reader) ([]component, error) {
	var components []component
	for files := tar.NewReader(layer); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return components, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg || path.Dir(path.Clean(header.Name)) != "var/lib/dpkg/status.d" {
			continue
		}
		// The format of control files is that of mail headers.
		fields, err := textproto.NewReader(bufio.NewReader(files)).ReadMIMEHeader()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
		name, version := fields.Get("Package"), fields.Get("Version")
		components = append(components, component{
			name: name, version: version,
			purl: purl("deb", "debian/"+name, version) + "?arch=" + fields.Get("Architecture"),
		})
	}
}

func purl(kind, name, version string) string {
	return "pkg:" + kind + "/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
}

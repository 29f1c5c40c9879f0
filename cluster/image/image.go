// SPDX-License-Identifier: Apache-2.0

// Package image makes container images without a registry and without a
// container engine: Build from a Debian root file system by mmdebstrap and
// Python wheels by pip, FromBinary from one static binary. Both write an image
// tar that "ctr images import" reads. tools/images uses Binary and Assemble for
// the images of a release.
//
// The tars of Build are kept in a cache directory under names that carry a hash
// of what they were made from, so that a changed Definition is a new file and an
// unchanged one costs nothing.
package image

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
)

// formatVersion is part of every hash. It has to grow whenever this package
// begins to make a different image from the same Definition and the same
// commands.
const formatVersion = 1

// Definition says what is in an image.
type Definition struct {
	// Name identifies the image within the cache directory.
	Name string
	// Ref is the reference the image is run by, with a tag.
	Ref string
	// Suite is the Debian release, by its code name.
	Suite string
	// Packages are Debian packages that are added to the essential ones.
	Packages []string
	// Pip are requirements of wheels from the host's package index, pinned to a
	// version and complete: dependencies are not followed.
	Pip []string
	// Python is the version of the suite's python3 ("3.13"), which selects the
	// wheels. It is needed only with Pip.
	Python string
	// Exclude are patterns of absolute paths to leave out of the packages and
	// wheels. MPI runtimes bring benchmarks, tuning tools and compilers for GPUs
	// that are larger than themselves.
	Exclude []string
	// Hooks are run by a shell of the host when all packages are there, with the
	// root file system's path as $1. They are for what is neither a package nor a wheel.
	Hooks []string `json:",omitempty"` // Images without any keep their hashes.
	// IsUnpackedOnly leaves out the essential packages, and runs no script of a package.
	// Such an image is small, and can be made for another architecture.
	IsUnpackedOnly bool `json:",omitempty"`
	// Architecture is the Go name of the image's architecture. Default: the host's.
	Architecture string `json:",omitempty"`
	// Env is the environment of every container, as NAME=value.
	Env []string
}

// HostTool is a command that Build runs on the host.
type HostTool struct {
	// Probe is a command line that succeeds where the tool is installed.
	Probe []string
	// Package is the Debian package that brings it.
	Package string
}

// HostTools are the commands that Build needs on the host for this image.
func (d Definition) HostTools() []HostTool {
	tools := []HostTool{{Probe: []string{"mmdebstrap", "--version"}, Package: "mmdebstrap"}}
	if len(d.Pip) > 0 {
		tools = append(tools, HostTool{Probe: []string{"python3", "-m", "pip", "--version"}, Package: "python3-pip"})
	}
	return tools
}

// Hash identifies the content of the image in 12 hexadecimal digits. It covers
// the commands as well as the Definition, so that a changed option of
// mmdebstrap cannot be forgotten. The versions of the Debian packages are not
// in it: an image stays as it is until its Definition changes.
func (d Definition) Hash() string {
	content, err := json.Marshal(struct {
		Format       int
		Architecture string
		Definition   Definition
		Rootfs, Pip  []string
	}{formatVersion, d.architecture(), d, rootfsCommand(d), downloadCommand(d, "")})
	if err != nil {
		panic(fmt.Sprintf("encode definition of image %s: %v", d.Name, err)) // only strings and integers
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])[:12]
}

// ExactRef is the second reference of the image. It names one content, so an
// importer that finds it in containerd has exactly this build.
func (d Definition) ExactRef() string {
	return d.Ref + "-" + d.Hash()
}

func (d Definition) architecture() string {
	return cmp.Or(d.Architecture, runtime.GOARCH)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
)

var architectures = []string{"amd64", "arm64"}

// platform is an operating system and an architecture, with Go's names.
type platform struct{ os, architecture string }

func (p platform) String() string { return p.os + "-" + p.architecture }

func linux(architecture string) platform { return platform{"linux", architecture} }

// goEnvironment contains every variable that changes what Go builds, so that the
// settings of a machine do not.
func goEnvironment(p platform, fips string) []string {
	return []string{
		"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFIPS140=" + cmp.Or(fips, "off"), "GOFLAGS=", "GOEXPERIMENT=", "GODEBUG=", "GOWORK=off",
	}
}

// compile builds programs for one platform into a folder.
func compile(ctx context.Context, s settings, p platform, folder string, programs []string) error {
	arguments := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", s.ldflags, "-o", folder + "/"}
	if s.fips != "" {
		// Programs with this tag refuse algorithms that the module has not approved.
		arguments = append(arguments, "-tags", "fips")
	}
	for _, program := range programs {
		arguments = append(arguments, "./cmd/"+program)
	}
	_, err := output(ctx, s.repository, goEnvironment(p, s.fips), "go", arguments...)
	return err
}

// SPDX-License-Identifier: Apache-2.0

// Command registry is the distribution registry with what the local cluster needs of
// it: files on disk and passwords. Its own main package also links the clients of
// three cloud providers.
package main

import (
	"os"

	"github.com/distribution/distribution/v3/registry"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	// Otherwise it sends traces to a collector that does not exist.
	if err := os.Setenv("OTEL_TRACES_EXPORTER", "none"); err != nil {
		panic(err)
	}
	if registry.RootCmd.Execute() != nil {
		os.Exit(1) // cobra has printed the error
	}
}

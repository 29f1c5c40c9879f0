// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"fmt"
	"os"
	"runtime"
)

func main() {
	fmt.Fprintf(os.Stderr, "cluster: this machine runs %s, but the local cluster needs Linux (namespaces, control groups); use a Linux virtual machine\n", runtime.GOOS)
	os.Exit(1)
}

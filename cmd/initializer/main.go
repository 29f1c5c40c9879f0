// SPDX-License-Identifier: Apache-2.0

// The initializer downloads a dataset or a model to a volume before the pods of a job are
// created. It is the only file in its image.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/trireme-mpi/trireme/internal/initializer"
)

func main() {
	// The group of the volume may change the files, not only the user: pods of a namespace
	// share a group more often than a user.
	syscall.Umask(0o002)
	// The list of millions of files hardly changes: more frequent garbage collection costs
	// little, and the pod may have little memory.
	debug.SetGCPercent(50)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(initializer.Main(ctx, os.Args[1:], os.Getenv, os.Stderr))
}

// The initializer fetches a dataset or a model onto a volume before a job asks
// for nodes. It is the only file of its image.
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
	// The group of the volume may change what is fetched, as the user may: pods of
	// a namespace share a group more often than a user.
	syscall.Umask(0o002)
	// Millions of files are a list that hardly changes: collecting garbage more
	// often costs little, and the pod may be small.
	debug.SetGCPercent(50)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(initializer.Main(ctx, os.Args[1:], os.Getenv, os.Stderr))
}

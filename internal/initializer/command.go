// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

const (
	// terminationLogVariable overrides the path of the termination message.
	terminationLogVariable = "TRIREME_TERMINATION_LOG"
	terminationLog         = "/dev/termination-log"

	exitFailure    = 1
	exitUsage      = 2
	exitTerminated = 128 + int(syscall.SIGTERM)

	defaultParallel = 8
	// stopGrace is how long the initializer may take to stop after SIGTERM.
	stopGrace = 10 * time.Second
)

const usageText = `initializer fetches a dataset or a model for a job.

  initializer fetch --kind dataset|model [--from DIRECTORY] [--parallel N] URI DIRECTORY

  URI          s3://bucket/path, hf://owner/name[@revision] or pvc://claim/path
  DIRECTORY    Destination directory
  --kind       Kind of the data; hf://owner/name is a repository of this kind
  --from       Mount path of the PVC of a pvc:// URI
  --parallel   Number of files to fetch at the same time (default: 8)
`

// Main runs the command line and returns the exit code. The context ends when the pod must
// stop.
func Main(ctx context.Context, arguments []string, environment Environment, output io.Writer) int {
	return run(ctx, arguments, environment, output, defaultTiming())
}

func run(ctx context.Context, arguments []string, environment Environment, output io.Writer, timing timing) int {
	task, err := parseArguments(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(output, usageText)
		return 0
	}
	if err == nil {
		task.environment, task.output, task.timing = environment, output, timing
		err = runWithGrace(ctx, task)
	}
	if err == nil {
		return 0
	}
	message, code := terminationMessage(ctx, task, err)
	// Redacted before it is truncated: a part of a secret would not be recognized.
	message = oneLine(newRedactor(environment).text(message))
	fmt.Fprintf(output, "trireme: %s\n", message)
	path, _ := environment.value(terminationLogVariable)
	if path == "" {
		path = terminationLog
	}
	if err := os.WriteFile(path, []byte(message), 0o644); err != nil && !os.IsNotExist(err) && !os.IsPermission(err) {
		fmt.Fprintf(output, "trireme: write the termination message: %v\n", err)
	}
	return code
}

// runWithGrace does not wait longer than stopGrace for a hanging volume after the context
// has ended.
func runWithGrace(ctx context.Context, task task) error {
	done := make(chan error, 1)
	go func() { done <- fetchTask(ctx, task) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(stopGrace):
		return context.Cause(ctx)
	}
}

// terminationMessage returns the last message and the exit code of a failed run.
func terminationMessage(ctx context.Context, task task, err error) (message string, code int) {
	var usageErr *UsageError
	switch {
	case errors.As(err, &usageErr):
		return usageErr.Error(), exitUsage
	case ctx.Err() != nil:
		return fmt.Sprintf("fetching the %s %s was interrupted; completed files are kept, and the next start continues from them", task.kind, task.uri), exitTerminated
	}
	return fmt.Sprintf("cannot fetch the %s %s: %v", task.kind, task.uri, err), exitFailure
}

func parseArguments(arguments []string) (task, error) {
	var task task
	if len(arguments) == 0 || arguments[0] != "fetch" {
		if len(arguments) == 1 && (arguments[0] == "help" || arguments[0] == "--help" || arguments[0] == "-h") {
			return task, flag.ErrHelp
		}
		return task, usage("usage: initializer fetch --kind dataset|model URI DIRECTORY")
	}
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	kind := flags.String("kind", "", "")
	flags.StringVar(&task.from, "from", "", "")
	flags.IntVar(&task.parallel, "parallel", defaultParallel, "")
	if err := flags.Parse(arguments[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return task, err
		}
		return task, usage("%v", err)
	}
	task.kind = Kind(*kind)
	switch {
	case task.kind != Dataset && task.kind != Model:
		return task, usage("--kind must be dataset or model")
	case task.parallel < 1 || task.parallel > 64:
		return task, usage("--parallel must be between 1 and 64")
	case flags.NArg() != 2 || flags.Arg(1) == "":
		// The arguments are not shown: they may have a password.
		return task, usage("exactly one URI and one directory are required: initializer fetch --kind %s URI DIRECTORY", task.kind)
	}
	task.uri, task.directory = flags.Arg(0), flags.Arg(1)
	return task, nil
}

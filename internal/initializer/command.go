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
	// terminationLogVariable overrides where the last message goes.
	terminationLogVariable = "TRIREME_TERMINATION_LOG"
	terminationLog         = "/dev/termination-log"

	exitFailure    = 1
	exitUsage      = 2
	exitTerminated = 128 + int(syscall.SIGTERM)

	defaultParallel = 8
	// lastGrace is how long an end may take that was asked for.
	lastGrace = 10 * time.Second
)

const usageText = `initializer fetches a dataset or a model for a job.

  initializer fetch --kind dataset|model [--from DIRECTORY] [--parallel N] URI DIRECTORY

  URI          s3://bucket/path, hf://owner/name[@revision] or pvc://claim/path
  DIRECTORY    Destination directory
  --kind       Kind of the data; hf://owner/name is a repository of this kind
  --from       Mount path of the PVC of a pvc:// URI
  --parallel   Number of files to fetch at the same time (default: 8)
`

// Main runs the command line and returns the exit code. The context ends when
// the pod is to end.
func Main(ctx context.Context, arguments []string, environment Environment, output io.Writer) int {
	return run(ctx, arguments, environment, output, defaultTiming())
}

func run(ctx context.Context, arguments []string, environment Environment, output io.Writer, timing timing) int {
	order, err := parseArguments(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(output, usageText)
		return 0
	}
	if err == nil {
		order.environment, order.output, order.timing = environment, output, timing
		err = runToEnd(ctx, order)
	}
	if err == nil {
		return 0
	}
	message, code := judge(ctx, order, err)
	// Masked before it is cut: half a secret would not be known as one.
	message = sentence(newRedactor(environment).text(message))
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

// runToEnd does not wait for ever for a volume that hangs, once the end is near.
func runToEnd(ctx context.Context, order order) error {
	done := make(chan error, 1)
	go func() { done <- fetchOrder(ctx, order) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(lastGrace):
		return context.Cause(ctx)
	}
}

// judge is the last message and the exit code of a run that did not succeed.
func judge(ctx context.Context, order order, err error) (message string, code int) {
	var wrong *UsageError
	switch {
	case errors.As(err, &wrong):
		return wrong.Error(), exitUsage
	case ctx.Err() != nil:
		return fmt.Sprintf("fetching the %s %s was interrupted; completed files are kept, and the next start continues from them", order.kind, order.uri), exitTerminated
	}
	return fmt.Sprintf("cannot fetch the %s %s: %v", order.kind, order.uri, err), exitFailure
}

func parseArguments(arguments []string) (order, error) {
	var order order
	if len(arguments) == 0 || arguments[0] != "fetch" {
		if len(arguments) == 1 && (arguments[0] == "help" || arguments[0] == "--help" || arguments[0] == "-h") {
			return order, flag.ErrHelp
		}
		return order, usage("usage: initializer fetch --kind dataset|model URI DIRECTORY")
	}
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	kind := flags.String("kind", "", "")
	flags.StringVar(&order.from, "from", "", "")
	flags.IntVar(&order.parallel, "parallel", defaultParallel, "")
	if err := flags.Parse(arguments[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return order, err
		}
		return order, usage("%v", err)
	}
	order.kind = Kind(*kind)
	switch {
	case order.kind != Dataset && order.kind != Model:
		return order, usage("--kind must be dataset or model")
	case order.parallel < 1 || order.parallel > 64:
		return order, usage("--parallel must be between 1 and 64")
	case flags.NArg() != 2 || flags.Arg(1) == "":
		// Not shown: what stands there may hold a password.
		return order, usage("exactly one URI and one directory are required: initializer fetch --kind %s URI DIRECTORY", order.kind)
	}
	order.uri, order.directory = flags.Arg(0), flags.Arg(1)
	return order, nil
}

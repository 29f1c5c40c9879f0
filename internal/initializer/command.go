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
	// TerminationLogVariable overrides where the last message goes.
	TerminationLogVariable = "TRIREME_TERMINATION_LOG"
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
  DIRECTORY    where it goes
  --kind       what it is; hf://owner/name is a repository of this kind
  --from       where the claim of a pvc:// URI is mounted
  --parallel   how many files are fetched at once (8)
`

// Main runs the command line and returns the exit code. The context ends when
// the pod is to end.
func Main(ctx context.Context, arguments []string, environment Environment, output io.Writer) int {
	request, err := parseArguments(arguments)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(output, usageText)
		return 0
	}
	if err == nil {
		request.Environment, request.Output = environment, output
		err = runToEnd(ctx, request)
	}
	if err == nil {
		return 0
	}
	message, code := judge(ctx, request, err)
	message = newRedactor(environment).text(sentence(message))
	fmt.Fprintf(output, "trireme: %s\n", message)
	path, _ := environment.value(TerminationLogVariable)
	if path == "" {
		path = terminationLog
	}
	if err := os.WriteFile(path, []byte(message), 0o644); err != nil && !os.IsNotExist(err) && !os.IsPermission(err) {
		fmt.Fprintf(output, "trireme: write the termination message: %v\n", err)
	}
	return code
}

// runToEnd does not wait for ever for a volume that hangs, once the end is near.
func runToEnd(ctx context.Context, request Request) error {
	done := make(chan error, 1)
	go func() { done <- Run(ctx, request) }()
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
func judge(ctx context.Context, request Request, err error) (message string, code int) {
	var wrong *UsageError
	switch {
	case errors.As(err, &wrong):
		return wrong.Error(), exitUsage
	case ctx.Err() != nil:
		return fmt.Sprintf("fetching the %s %s was ended before it was complete; what is there is kept, and the next start goes on from it", request.Kind, request.URI), exitTerminated
	}
	return fmt.Sprintf("cannot fetch the %s %s: %v", request.Kind, request.URI, err), exitFailure
}

func parseArguments(arguments []string) (Request, error) {
	var request Request
	if len(arguments) == 0 || arguments[0] != "fetch" {
		if len(arguments) == 1 && (arguments[0] == "help" || arguments[0] == "--help" || arguments[0] == "-h") {
			return request, flag.ErrHelp
		}
		return request, usage("say: initializer fetch --kind dataset|model URI DIRECTORY")
	}
	flags := flag.NewFlagSet("fetch", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	kind := flags.String("kind", "", "")
	flags.StringVar(&request.From, "from", "", "")
	flags.IntVar(&request.Parallel, "parallel", defaultParallel, "")
	if err := flags.Parse(arguments[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return request, err
		}
		return request, usage("%v", err)
	}
	request.Kind = Kind(*kind)
	switch {
	case request.Kind != Dataset && request.Kind != Model:
		return request, usage("--kind must be dataset or model")
	case request.Parallel < 1 || request.Parallel > 64:
		return request, usage("--parallel must be between 1 and 64")
	case flags.NArg() != 2 || flags.Arg(1) == "":
		// Not shown: what stands there may hold a password.
		return request, usage("a URI and a directory are needed, and nothing else: initializer fetch --kind %s URI DIRECTORY", request.Kind)
	}
	request.URI, request.Directory = flags.Arg(0), flags.Arg(1)
	return request, nil
}

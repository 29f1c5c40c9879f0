package cli

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// showChanges prints the jobs and then each change, until it is interrupted.
func (lister *lister) showChanges(ctx context.Context, printer printers.ResourcePrinter) error {
	jobs, versions, err := lister.read(ctx)
	if err != nil {
		return err
	}
	screen := &changing{lister: lister, printer: printer, out: printers.GetNewTabWriter(lister.Out)}
	if err := screen.show(ctx, jobs...); err != nil {
		return err
	}
	var watches errgroup.Group
	for _, kind := range lister.kinds {
		watches.Go(func() error { return lister.watchKind(ctx, kind, versions[kind], screen) })
	}
	err = watches.Wait()
	if ctx.Err() != nil {
		return exit(exitInterrupted)
	}
	return err
}

// watchKind shows the changes of one kind. When the resource version has expired, it
// shows every job again.
func (lister *lister) watchKind(ctx context.Context, kind *kind, version string, screen *changing) error {
	for {
		source := &watcher{WithWatch: lister.client, list: kind.NewList(), options: client.ListOptions{Namespace: lister.namespace, LabelSelector: lister.matching}}
		err := source.changes(ctx, version, func(_ watch.EventType, object client.Object) (bool, error) {
			seen := jobview.Of(object)
			if !lister.wants(seen) {
				return false, nil
			}
			return false, screen.show(ctx, seen)
		})
		if err == nil || !expired(err) {
			return err
		}
		jobs, versions, err := lister.read(ctx)
		if err != nil {
			return err
		}
		version = versions[kind]
		if err := screen.show(ctx, jobs...); err != nil {
			return err
		}
	}
}

// changing is a growing table with columns of constant width.
type changing struct {
	*lister
	mutex   sync.Mutex
	printer printers.ResourcePrinter
	out     interface {
		io.Writer
		Flush() error
	}
}

func (screen *changing) show(ctx context.Context, jobs ...*view) error {
	if len(jobs) == 0 {
		return nil
	}
	screen.mutex.Lock()
	defer screen.mutex.Unlock()
	if screen.humanly {
		if err := screen.printer.PrintObj(screen.table(ctx, jobs, screen.clock.Now()), screen.out); err != nil {
			return err
		}
		return screen.out.Flush()
	}
	for _, seen := range jobs {
		object, err := asUnstructured(seen.Object, seen.Kind)
		if err != nil {
			return err
		}
		if err := screen.printer.PrintObj(object, screen.Out); err != nil {
			return err
		}
	}
	return nil
}

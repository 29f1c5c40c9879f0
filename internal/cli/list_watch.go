// SPDX-License-Identifier: Apache-2.0

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
func (l *lister) showChanges(ctx context.Context, printer printers.ResourcePrinter) error {
	jobs, versions, err := l.read(ctx)
	if err != nil {
		return err
	}
	screen := &growingTable{lister: l, printer: printer, out: printers.GetNewTabWriter(l.Out)}
	if err := screen.show(ctx, jobs...); err != nil {
		return err
	}
	var watches errgroup.Group
	for _, kind := range l.kinds {
		watches.Go(func() error { return l.watchKind(ctx, kind, versions[kind], screen) })
	}
	err = watches.Wait()
	if ctx.Err() != nil {
		return exit(exitInterrupted)
	}
	return err
}

// watchKind shows the changes of one kind. When the resource version has expired, it
// shows every job again.
func (l *lister) watchKind(ctx context.Context, kind *kind, version string, screen *growingTable) error {
	for {
		source := &watcher{WithWatch: l.client, list: kind.NewList(), options: client.ListOptions{Namespace: l.namespace, LabelSelector: l.matching}}
		err := source.changes(ctx, version, func(_ watch.EventType, object client.Object) (bool, error) {
			j := jobview.Of(object)
			if !l.matches(j) {
				return false, nil
			}
			return false, screen.show(ctx, j)
		})
		if err == nil || !expired(err) {
			return err
		}
		jobs, versions, err := l.read(ctx)
		if err != nil {
			return err
		}
		version = versions[kind]
		if err := screen.show(ctx, jobs...); err != nil {
			return err
		}
	}
}

// growingTable is a growing table with columns of constant width.
type growingTable struct {
	*lister
	mutex   sync.Mutex
	printer printers.ResourcePrinter
	out     interface {
		io.Writer
		Flush() error
	}
}

func (t *growingTable) show(ctx context.Context, jobs ...*view) error {
	if len(jobs) == 0 {
		return nil
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.humanReadable {
		if err := t.printer.PrintObj(t.table(ctx, jobs, t.clock.Now()), t.out); err != nil {
			return err
		}
		return t.out.Flush()
	}
	for _, j := range jobs {
		object, err := asUnstructured(j.Object, j.Kind)
		if err != nil {
			return err
		}
		if err := t.printer.PrintObj(object, t.Out); err != nil {
			return err
		}
	}
	return nil
}

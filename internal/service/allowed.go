package service

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/trireme-mpi/trireme/internal/problem"
)

// recheckEvery is how often a stream asks whether its caller still has the right to
// it. With what the guard keeps, a right that was taken away ends it within a minute.
const recheckEvery = 20 * time.Second

// whileAllowed is a stream that ends when its caller no longer has the right to it.
func whileAllowed[Item any](ctx context.Context, every time.Duration, allowed func(context.Context) error, begin func(context.Context) iter.Seq2[Item, error]) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		ctx, stop := supervised(ctx, every, allowed)
		defer stop()
		for item, err := range begin(ctx) {
			if err != nil && refusal(ctx) != nil {
				break
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
		if refused := refusal(ctx); refused != nil {
			var none Item
			yield(none, refused)
		}
	}
}

// supervised is a context that ends when something is no longer allowed. A timer costs
// a stream that says nothing less than a goroutine would.
func supervised(ctx context.Context, every time.Duration, allowed func(context.Context) error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := make(chan struct{})
	var timer *time.Timer
	timer = time.AfterFunc(every, func() {
		<-begun
		// Only a clear no ends it: the cluster may be away for a moment.
		if err := allowed(ctx); err != nil && problem.From(err).Code == http.StatusForbidden {
			cancel(&noLongerAllowed{problem.From(err)})
			return
		}
		if ctx.Err() == nil {
			timer.Reset(every)
		}
	})
	close(begun)
	return ctx, func() { timer.Stop(); cancel(nil) }
}

// noLongerAllowed is why a supervised context has ended.
type noLongerAllowed struct{ told *problem.Error }

func (err *noLongerAllowed) Error() string { return err.told.Message }

// refusal is what a caller is told whose right was taken away; nil if it was not.
func refusal(ctx context.Context) error {
	if refused, is := errors.AsType[*noLongerAllowed](context.Cause(ctx)); is {
		return refused.told
	}
	return nil
}

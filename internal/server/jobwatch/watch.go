package jobwatch

import (
	"context"
	"time"
)

// tell tells a reader everything, until it stops or falls behind.
func (cached *cached) tell(ctx context.Context, watch Watch, yield func(*Event) bool) error {
	var next uint64
	var err error
	if watch.Since == "" {
		next, err = cached.tellAll(watch, yield)
	} else {
		next, err = cached.find(ctx, watch)
	}
	for err == nil {
		var events []*Event
		var moved <-chan struct{}
		var kept bool
		events, next, moved, kept = cached.read(next, watch)
		if !kept {
			cached.metrics.resumed(resumeSlow)
			return tooSlow()
		}
		for _, event := range events {
			if !yield(event) {
				return errStopped
			}
		}
		if len(events) == 0 {
			err = waitFor(ctx, moved)
		}
	}
	return err
}

func waitFor(ctx context.Context, moved <-chan struct{}) error {
	select {
	case <-moved:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tellAll tells all jobs that there are, and returns the number of the first change
// after that.
func (cached *cached) tellAll(watch Watch, yield func(*Event) bool) (uint64, error) {
	jobs, version, next := cached.snapshot(watch)
	for _, job := range jobs {
		if !yield(job.asAdded()) {
			return 0, errStopped
		}
	}
	if !yield(syncedEvent(cached.kind, watch, at(version).String(), time.Now())) {
		return 0, errStopped
	}
	return next, nil
}

// find is the number of the first change after the version that a reader has seen.
func (cached *cached) find(ctx context.Context, watch Watch) (uint64, error) {
	next, result, err := cached.findSince(ctx, watch.Since)
	if err != nil {
		result = resumeRefused
		if isExpired(err) {
			result = resumeExpired
		}
	}
	cached.metrics.resumed(result)
	return next, err
}

func (cached *cached) findSince(ctx context.Context, since string) (next uint64, result string, err error) {
	seen, err := parsePosition(since)
	if err != nil {
		return 0, "", err
	}
	result = resumeMemory
	for err == nil {
		_, moved := cached.state()
		next, where := cached.resume(seen)
		switch where {
		case known:
			return next, result, nil
		case lost:
			return 0, "", tooOld()
		case older:
			result = resumeAsked
			err = cached.filler.fill(ctx, seen.version)
		case ahead:
			// Another replica may have told it, which was faster.
			if result != resumeAsked {
				result, err = resumeAsked, cached.filler.remote.confirm(ctx, scope{}, seen.version)
			}
			if err == nil {
				err = waitFor(ctx, moved)
			}
		}
	}
	return 0, "", ofServer(err)
}

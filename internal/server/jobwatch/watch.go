// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"context"
	"time"
)

// send sends events to a client, until it stops or is too slow.
func (c *cached) send(ctx context.Context, watch Watch, yield func(*Event) bool) error {
	var next uint64
	var err error
	if watch.Since == "" {
		next, err = c.sendAll(watch, yield)
	} else {
		next, err = c.resumeFrom(ctx, watch)
	}
	for err == nil {
		var events []*Event
		var changed <-chan struct{}
		var available bool
		events, next, changed, available = c.read(next, watch)
		if !available {
			c.metrics.resumed(resumeSlow)
			return tooSlow()
		}
		for _, event := range events {
			if !yield(event) {
				return errStopped
			}
		}
		if len(events) == 0 {
			err = waitFor(ctx, changed)
		}
	}
	return err
}

func waitFor(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendAll sends all existing jobs, and returns the number of the first change after them.
func (c *cached) sendAll(watch Watch, yield func(*Event) bool) (uint64, error) {
	jobs, version, next := c.snapshot(watch)
	for _, job := range jobs {
		if !yield(job.asAdded()) {
			return 0, errStopped
		}
	}
	if !yield(syncedEvent(c.kind, watch, at(version).String(), time.Now())) {
		return 0, errStopped
	}
	return next, nil
}

// resumeFrom returns the number of the first change after the client's version.
func (c *cached) resumeFrom(ctx context.Context, watch Watch) (uint64, error) {
	next, result, err := c.resumeSince(ctx, watch.Since)
	if err != nil {
		result = resumeRefused
		if isExpired(err) {
			result = resumeExpired
		}
	}
	c.metrics.resumed(result)
	return next, err
}

func (c *cached) resumeSince(ctx context.Context, since string) (next uint64, result string, err error) {
	last, err := parsePosition(since)
	if err != nil {
		return 0, "", err
	}
	result = resumeMemory
	for err == nil {
		_, changed := c.state()
		next, state := c.resume(last)
		switch state {
		case known:
			return next, result, nil
		case lost:
			return 0, "", tooOld()
		case older:
			result = resumeAsked
			err = c.history.load(ctx, last.version)
		case ahead:
			// Another replica may have been faster, and sent it.
			if result != resumeAsked {
				result, err = resumeAsked, c.history.remote.confirm(ctx, scope{}, last.version)
			}
			if err == nil {
				err = waitFor(ctx, changed)
			}
		}
	}
	return 0, "", hideServerError(err)
}

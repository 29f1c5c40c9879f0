package initializer

import (
	"context"
	"errors"
	"io"
	"time"
)

var errStalled = errors.New("nothing arrives any more")

// watched ends a download of which nothing arrives any more: without it a
// connection that a firewall has forgotten would be waited for for ever.
type watched struct {
	io.ReadCloser
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	timeout time.Duration
	context context.Context
}

// watch opens a content whose reading fails if it pauses for too long.
func watch(ctx context.Context, timeout time.Duration, open func(context.Context) (*content, error)) (*content, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	opened, err := open(ctx)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	timer := time.AfterFunc(timeout, func() { cancel(errStalled) })
	opened.ReadCloser = &watched{ReadCloser: opened.ReadCloser, cancel: cancel, timer: timer, timeout: timeout, context: ctx}
	return opened, nil
}

func (watched *watched) Read(buffer []byte) (int, error) {
	watched.timer.Reset(watched.timeout)
	count, err := watched.ReadCloser.Read(buffer)
	if err != nil && err != io.EOF && context.Cause(watched.context) == errStalled {
		err = errStalled
	}
	return count, err
}

func (watched *watched) Close() error {
	watched.timer.Stop()
	watched.cancel(nil)
	return watched.ReadCloser.Close()
}

// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

const (
	// smallBody is larger than almost every job. A user may send any number of small
	// bodies, up to the limit of requests in progress, but only a few larger ones: all of
	// them are in memory at the same time.
	smallBody      = 256 << 10
	maxLargeBodies = 8
)

// acquireLargeBody counts a large body of a user, or refuses it. Call release when the
// request has finished.
func (u *userLimiter) acquireLargeBody(user string) (release func(), err error) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	usage := u.usage(user)
	if usage.largeBodies >= maxLargeBodies {
		return nil, &limitError{cause: causeBodies, delay: time.Second, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q is sending %d bodies of more than %d KiB, which is the maximum", user, usage.largeBodies, smallBody>>10),
			"Send them one after another")}
	}
	usage.largeBodies++
	return sync.OnceFunc(func() {
		u.mutex.Lock()
		defer u.mutex.Unlock()
		usage.largeBodies--
	}), nil
}

// limitLargeBody counts the body of an admitted request if its Content-Length is large or
// unknown.
func (s *Server) limitLargeBody(request *http.Request, call *call) error {
	if call.caller == nil || request.ContentLength >= 0 && request.ContentLength <= smallBody {
		return nil
	}
	release, err := s.users.acquireLargeBody(call.caller.User)
	if err != nil {
		return err
	}
	before := call.release
	call.release = func() { release(); before() }
	return nil
}

// countedBody is the body of a gRPC call, whose length is unknown until it is read.
type countedBody struct {
	io.ReadCloser
	acquire func() (release func(), err error)

	mutex   sync.Mutex
	read    int
	release func()
	ended   bool
}

// errEnded is the error of a body that is read after its call has finished.
var errEnded = errors.New("the call has ended")

// Read reads from the body. It fails if the body is large and the user may not send more
// large bodies.
func (c *countedBody) Read(to []byte) (int, error) {
	count, err := c.ReadCloser.Read(to)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.read += count
	switch {
	case c.ended:
		return 0, errEnded
	case c.read > smallBody && c.release == nil:
		release, limitErr := c.acquire()
		if limitErr != nil {
			return 0, limitErr
		}
		c.release = release
	}
	return count, err
}

// end releases the body.
func (c *countedBody) end() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ended = true
	if c.release != nil {
		c.release()
	}
}

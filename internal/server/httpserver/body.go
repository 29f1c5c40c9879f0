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
	// smallBody is more than almost every job has. A user may send as many of them as
	// there are calls under way, but only few that are larger: all of them are in memory
	// at a time.
	smallBody      = 256 << 10
	maxLargeBodies = 8
)

// enterLarge lets a body of a user in that is not small. What it returns is called when
// the call has ended.
func (f *userLimiter) acquireLargeBody(user string) (release func(), err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	share := f.usage(user)
	if share.largeBodies >= maxLargeBodies {
		return nil, &limitError{cause: causeBodies, delay: time.Second, apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q is sending %d bodies of more than %d KiB, which is the maximum", user, share.largeBodies, smallBody>>10),
			"Send them one after another")}
	}
	share.largeBodies++
	return sync.OnceFunc(func() {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		share.largeBodies--
	}), nil
}

// boundLarge lets the body of an admitted request in, by what the request says of its
// length.
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

// countedBody is the body of a call over gRPC, which never says its length.
type countedBody struct {
	io.ReadCloser
	acquire func() (leave func(), err error)

	mutex   sync.Mutex
	read    int
	release func()
	ended   bool
}

// errEnded is what nobody reads who matters: the call has ended.
var errEnded = errors.New("the call has ended")

// Read reads as long as the user may send more.
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

// end forgets the body.
func (c *countedBody) end() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ended = true
	if c.release != nil {
		c.release()
	}
}

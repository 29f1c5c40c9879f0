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
	smallBody = 256 << 10
	mostLarge = 8
)

// enterLarge lets a body of a user in that is not small. What it returns is called when
// the call has ended.
func (f *fair) enterLarge(user string) (leave func(), err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	share := f.share(user)
	if share.large >= mostLarge {
		return nil, &tooMany{cause: causeBodies, after: time.Second, told: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
			fmt.Sprintf("User %q is sending %d bodies of more than %d KiB, which is the maximum", user, share.large, smallBody>>10),
			"Send them one after another")}
	}
	share.large++
	return sync.OnceFunc(func() {
		f.mutex.Lock()
		defer f.mutex.Unlock()
		share.large--
	}), nil
}

// boundLarge lets the body of an admitted request in, by what the request says of its
// length.
func (s *Server) boundLarge(request *http.Request, call *call) error {
	if call.caller == nil || request.ContentLength >= 0 && request.ContentLength <= smallBody {
		return nil
	}
	leave, err := s.fair.enterLarge(call.caller.User)
	if err != nil {
		return err
	}
	before := call.leave
	call.leave = func() { leave(); before() }
	return nil
}

// countedBody is the body of a call over gRPC, which never says its length.
type countedBody struct {
	io.ReadCloser
	enter func() (leave func(), err error)

	mutex sync.Mutex
	read  int
	leave func()
	ended bool
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
	case c.read > smallBody && c.leave == nil:
		leave, refused := c.enter()
		if refused != nil {
			return 0, refused
		}
		c.leave = leave
	}
	return count, err
}

// end forgets the body.
func (c *countedBody) end() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.ended = true
	if c.leave != nil {
		c.leave()
	}
}

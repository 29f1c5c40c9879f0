package access

import "time"

// Call is what the server must know of a call before it is made.
type Call struct {
	// Route is what calls are counted by: a pattern or a method, with nothing of the
	// caller's in it.
	Route string
	// Open is for everybody, also for those who show no token.
	Open bool
	// Stream is a call that lasts until one side ends it. It has no timeout.
	Stream  bool
	Timeout time.Duration
	// Record is what the call is to change, as far as that is known before it.
	Record Record
}

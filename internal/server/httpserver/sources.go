package httpserver

import (
	"container/list"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// mostSources is how many sources are remembered at a time.
const maxSources = 10_000

// ipv6Network is what one customer of a provider usually has: addresses within it cost
// nothing.
const ipv6Network = 64

// sources gives every source a budget of calls whose caller is not known.
type sources struct {
	rate, burst float64
	max         int
	clock       clock.PassiveClock

	mutex sync.Mutex
	// byName has the elements of recent, whose first is the source that was used last.
	byName map[string]*list.Element
	recent *list.List
}

// allowance is what a source had left at a time.
type allowance struct {
	source string
	left   float64
	at     time.Time
}

func newSources(limits Limits, most int, clock clock.PassiveClock) *sources {
	return &sources{
		rate: limits.UnauthenticatedRate, burst: float64(limits.UnauthenticatedBurst), max: most, clock: clock, byName: map[string]*list.Element{}, recent: list.New(),
	}
}

// sourceOf is what an address is counted by.
func sourceOf(address string) string {
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if parsed = parsed.Unmap().WithZone(""); parsed.Is4() {
		return parsed.String()
	}
	network, err := parsed.Prefix(ipv6Network)
	if err != nil {
		return address
	}
	return network.String()
}

// take lets a call of an address in, or says when the next one may come.
func (s *sources) acquire(address string) error {
	if s.burst == 0 {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	allowed := s.allowanceOf(sourceOf(address))
	if allowed.left < 1 {
		return &limitError{
			cause: causeUnauthenticated, delay: time.Duration((1 - allowed.left) / s.rate * float64(time.Second)),
			apiErr: apierror.New(http.StatusTooManyRequests, "TooManyRequests",
				fmt.Sprintf("Your address has sent more than %g requests per second without a valid token", s.rate),
				"Wait as long as Retry-After says, and send a valid token as Authorization: Bearer TOKEN"),
		}
	}
	allowed.left--
	return nil
}

// giveBack undoes take: the caller was found valid.
func (s *sources) release(address string) {
	if s.burst == 0 {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	allowed := s.allowanceOf(sourceOf(address))
	allowed.left = min(allowed.left+1, s.burst)
}

// allowanceOf is what a source has left now. The source that was not seen for the longest time is
// forgotten if there are too many: it has most likely its whole budget again.
func (s *sources) allowanceOf(source string) *allowance {
	now := s.clock.Now()
	if found, is := s.byName[source]; is {
		s.recent.MoveToFront(found)
		known := found.Value.(*allowance)
		known.left = min(known.left+s.rate*now.Sub(known.at).Seconds(), s.burst)
		known.at = now
		return known
	}
	if oldest := s.recent.Back(); len(s.byName) >= s.max {
		delete(s.byName, s.recent.Remove(oldest).(*allowance).source)
	}
	fresh := &allowance{source: source, left: s.burst, at: now}
	s.byName[source] = s.recent.PushFront(fresh)
	return fresh
}

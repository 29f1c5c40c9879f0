// SPDX-License-Identifier: Apache-2.0

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

// maxSources is the maximum number of sources to track.
const maxSources = 10_000

// ipv6Network is the prefix length that providers usually give to one customer, who can
// use any address in it.
const ipv6Network = 64

// sources limits the requests without a known caller per source.
type sources struct {
	rate, burst float64
	max         int
	clock       clock.PassiveClock

	mutex sync.Mutex
	// byName has the elements of recent, which is sorted by last use, latest first.
	byName map[string]*list.Element
	recent *list.List
}

// allowance is what a source has left of its budget at a time.
type allowance struct {
	source string
	left   float64
	at     time.Time
}

func newSources(limits Limits, max int, clock clock.PassiveClock) *sources {
	return &sources{
		rate: limits.UnauthenticatedRate, burst: float64(limits.UnauthenticatedBurst), max: max, clock: clock, byName: map[string]*list.Element{}, recent: list.New(),
	}
}

// sourceOf returns the source of an address.
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

// acquire counts a request from an address, or refuses it with the time until the next may
// come.
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

// release undoes acquire: the caller has a valid token.
func (s *sources) release(address string) {
	if s.burst == 0 {
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	allowed := s.allowanceOf(sourceOf(address))
	allowed.left = min(allowed.left+1, s.burst)
}

// allowanceOf returns what a source has left now. If there are too many sources, it
// removes the least recently used one, which most likely has its full budget again.
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

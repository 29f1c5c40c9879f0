package agent

import (
	"net"
	"slices"
	"sync"
)

const (
	// maxLogins is how many connections may be about to log in at a time.
	maxLogins = 512
	// maxLoginsPerSource is how many of them may come from one address. A launcher
	// has a handful at a worker; one that starts hundreds of commands at once fits.
	maxLoginsPerSource = maxLogins / 2
)

// login is a connection that has not logged in yet.
type login struct {
	connection net.Conn
	source     string
}

// logins are those of a worker. Anybody who reaches the port can open connections
// and say nothing. If the worker refused new ones then, it would refuse its launcher;
// so it drops an old one, which has had its time or never meant to log in.
type logins struct {
	mutex     sync.Mutex
	waiting   []login // The oldest first.
	perSource map[string]int
}

func newLogins() *logins { return &logins{perSource: map[string]int{}} }

// add makes room for a connection, and keeps it until it is removed or dropped.
func (logins *logins) add(connection net.Conn) {
	source := connection.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(source); err == nil {
		source = host
	}
	logins.mutex.Lock()
	defer logins.mutex.Unlock()
	if logins.perSource[source] >= maxLoginsPerSource {
		logins.drop(source)
	} else if len(logins.waiting) >= maxLogins {
		logins.drop(logins.busiestSource())
	}
	logins.waiting = append(logins.waiting, login{connection, source})
	logins.perSource[source]++
}

// remove forgets a connection that has logged in or is closed.
func (logins *logins) remove(connection net.Conn) {
	logins.mutex.Lock()
	defer logins.mutex.Unlock()
	index := slices.IndexFunc(logins.waiting, func(each login) bool { return each.connection == connection })
	if index >= 0 { // It may have been dropped.
		logins.removeAt(index)
	}
}

// drop closes the oldest connection of a source that has one.
func (logins *logins) drop(source string) {
	index := slices.IndexFunc(logins.waiting, func(each login) bool { return each.source == source })
	_ = logins.waiting[index].connection.Close()
	logins.removeAt(index)
}

// busiestSource is the source with the most connections; of several, the one with
// the oldest.
func (logins *logins) busiestSource() string {
	busiest := ""
	for _, each := range logins.waiting {
		if logins.perSource[each.source] > logins.perSource[busiest] {
			busiest = each.source
		}
	}
	return busiest
}

func (logins *logins) removeAt(index int) {
	source := logins.waiting[index].source
	logins.waiting = slices.Delete(logins.waiting, index, index+1)
	if logins.perSource[source]--; logins.perSource[source] == 0 {
		delete(logins.perSource, source)
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net"
	"slices"
	"sync"
)

const (
	// maxLogins limits the connections that have not logged in yet.
	maxLogins = 512
	// maxLoginsPerSource limits them per address. A launcher has a handful per worker, and
	// hundreds of commands at once still fit.
	maxLoginsPerSource = maxLogins / 2
)

// login is a connection that has not logged in yet.
type login struct {
	connection net.Conn
	source     string
}

// logins are the connections of a worker that have not logged in yet. Any client that
// reaches the port can open connections and send nothing. If the worker then refused new
// ones, it would refuse its launcher. It drops the oldest one instead.
type logins struct {
	mutex     sync.Mutex
	waiting   []login // oldest first
	perSource map[string]int
}

func newLogins() *logins { return &logins{perSource: map[string]int{}} }

// add adds a connection, and drops another one if there are too many.
func (l *logins) add(connection net.Conn) {
	source := connection.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(source); err == nil {
		source = host
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.perSource[source] >= maxLoginsPerSource {
		l.drop(source)
	} else if len(l.waiting) >= maxLogins {
		l.drop(l.busiestSource())
	}
	l.waiting = append(l.waiting, login{connection, source})
	l.perSource[source]++
}

// remove removes a connection that has logged in or is closed.
func (l *logins) remove(connection net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	index := slices.IndexFunc(l.waiting, func(each login) bool { return each.connection == connection })
	if index >= 0 { // It may have been dropped.
		l.removeAt(index)
	}
}

// drop closes the oldest connection of a source that has one.
func (l *logins) drop(source string) {
	index := slices.IndexFunc(l.waiting, func(each login) bool { return each.source == source })
	_ = l.waiting[index].connection.Close()
	l.removeAt(index)
}

// busiestSource returns the source with the most connections; if there are several, the
// one with the oldest connection.
func (l *logins) busiestSource() string {
	busiest := ""
	for _, each := range l.waiting {
		if l.perSource[each.source] > l.perSource[busiest] {
			busiest = each.source
		}
	}
	return busiest
}

func (l *logins) removeAt(index int) {
	source := l.waiting[index].source
	l.waiting = slices.Delete(l.waiting, index, index+1)
	if l.perSource[source]--; l.perSource[source] == 0 {
		delete(l.perSource, source)
	}
}

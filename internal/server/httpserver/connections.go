// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"sync"
)

// limitConnections wraps a listener. It closes connections over the limits immediately: if
// it waited, clients with many connections could keep all others waiting.
func (s *Server) limitConnections(listener net.Listener) net.Listener {
	return &limitedListener{Listener: listener, limits: s.Limits, metrics: s.metrics, bySource: map[string]int{}}
}

// limitedListener counts open connections.
type limitedListener struct {
	net.Listener
	limits  Limits
	metrics *metrics

	mutex    sync.Mutex
	open     int
	bySource map[string]int
}

// Accept waits for a connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		connection, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := connection.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(source); err == nil {
			source = sourceOf(host)
		}
		if cause := l.acquire(source); cause != "" {
			l.metrics.refusals.WithLabelValues(cause).Inc()
			_ = connection.Close()
			continue
		}
		return &countedConnection{Conn: connection, release: sync.OnceFunc(func() { l.release(source) })}, nil
	}
}

// acquire counts a connection, or returns the cause of the refusal.
func (l *limitedListener) acquire(source string) (cause string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	switch {
	case l.limits.ConnectionsPerSource > 0 && l.bySource[source] >= l.limits.ConnectionsPerSource:
		return causeConnectionsPerSource
	case l.limits.Connections > 0 && l.open >= l.limits.Connections:
		return causeConnections
	}
	l.open++
	l.bySource[source]++
	l.metrics.open.Inc()
	return ""
}

func (l *limitedListener) release(source string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.open--
	if l.bySource[source]--; l.bySource[source] == 0 {
		delete(l.bySource, source)
	}
	l.metrics.open.Dec()
}

// countedConnection is counted until it is closed.
type countedConnection struct {
	net.Conn
	release func()
}

// Close closes the connection and uncounts it.
func (c *countedConnection) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite lets the HTTP server finish a response before it closes a connection without
// TLS, so that the client reads all of it.
func (c *countedConnection) CloseWrite() error {
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil
}

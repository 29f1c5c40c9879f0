package httpserver

import (
	"net"
	"sync"
)

// limitConnections is a listener that closes connections at once that are too many, of
// one source or of all. It does not wait for room: who holds connections would keep
// everybody else waiting.
func (s *Server) limitConnections(listener net.Listener) net.Listener {
	return &limitedListener{Listener: listener, limits: s.Limits, metrics: s.metrics, bySource: map[string]int{}}
}

// limitedListener counts the connections that are open.
type limitedListener struct {
	net.Listener
	limits  Limits
	metrics *metrics

	mutex    sync.Mutex
	open     int
	bySource map[string]int
}

// Accept waits for a connection that is not too many.
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

// enter counts a connection, or says why there is no room for it.
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

// Close closes the connection, and makes room for another.
func (c *countedConnection) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// CloseWrite lets the HTTP server end an answer before it closes a connection without
// TLS, so that the client reads all of it.
func (c *countedConnection) CloseWrite() error {
	if half, is := c.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil
}

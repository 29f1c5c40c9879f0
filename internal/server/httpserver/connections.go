package httpserver

import (
	"net"
	"sync"
)

// limitConnections is a listener that closes connections at once that are too many, of
// one source or of all. It does not wait for room: who holds connections would keep
// everybody else waiting.
func (server *Server) limitConnections(listener net.Listener) net.Listener {
	return &limitedListener{Listener: listener, limits: server.Limits, metrics: server.metrics, bySource: map[string]int{}}
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
func (listener *limitedListener) Accept() (net.Conn, error) {
	for {
		connection, err := listener.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := connection.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(source); err == nil {
			source = sourceOf(host)
		}
		if cause := listener.enter(source); cause != "" {
			listener.metrics.refusals.WithLabelValues(cause).Inc()
			_ = connection.Close()
			continue
		}
		return &countedConnection{Conn: connection, leave: sync.OnceFunc(func() { listener.leave(source) })}, nil
	}
}

// enter counts a connection, or says why there is no room for it.
func (listener *limitedListener) enter(source string) (cause string) {
	listener.mutex.Lock()
	defer listener.mutex.Unlock()
	switch {
	case listener.limits.ConnectionsPerSource > 0 && listener.bySource[source] >= listener.limits.ConnectionsPerSource:
		return causeConnectionsPerSource
	case listener.limits.Connections > 0 && listener.open >= listener.limits.Connections:
		return causeConnections
	}
	listener.open++
	listener.bySource[source]++
	listener.metrics.open.Inc()
	return ""
}

func (listener *limitedListener) leave(source string) {
	listener.mutex.Lock()
	defer listener.mutex.Unlock()
	listener.open--
	if listener.bySource[source]--; listener.bySource[source] == 0 {
		delete(listener.bySource, source)
	}
	listener.metrics.open.Dec()
}

// countedConnection is counted until it is closed.
type countedConnection struct {
	net.Conn
	leave func()
}

// Close closes the connection, and makes room for another.
func (connection *countedConnection) Close() error {
	defer connection.leave()
	return connection.Conn.Close()
}

// CloseWrite lets the HTTP server end an answer before it closes a connection without
// TLS, so that the client reads all of it.
func (connection *countedConnection) CloseWrite() error {
	if half, is := connection.Conn.(interface{ CloseWrite() error }); is {
		return half.CloseWrite()
	}
	return nil
}

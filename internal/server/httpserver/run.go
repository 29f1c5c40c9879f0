package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

// Run serves until the context ends, and then ends in order: first nobody sends new
// requests, then streams are told to connect again elsewhere, then calls end. started
// is called with the address once requests are answered.
func (server *Server) Run(ctx context.Context, started func(net.Addr)) error {
	listener, err := net.Listen("tcp", server.Address)
	if err != nil {
		return fmt.Errorf("serve at %s: %w", server.Address, err)
	}
	// What helps to serve goes on until nothing is served any more.
	helping, stopHelping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHelping()
	group, failed := errgroup.WithContext(ctx)
	if server.certificates != nil {
		group.Go(func() error { return server.certificates.run(helping) })
	}
	if server.ProbeAddress != "" {
		probes, err := net.Listen("tcp", server.ProbeAddress)
		if err != nil {
			listener.Close()
			return fmt.Errorf("serve health at %s: %w", server.ProbeAddress, err)
		}
		group.Go(func() error { return server.serveProbes(helping, probes) })
	}
	main, limited := server.mainServer(), server.limitConnections(listener)
	group.Go(func() error {
		if server.certificates != nil {
			return ignoreClosed(main.ServeTLS(limited, "", ""))
		}
		return ignoreClosed(main.Serve(limited))
	})
	group.Go(func() error {
		<-failed.Done()
		defer stopHelping()
		return server.shutDown(main, ctx.Err() != nil)
	})
	if started != nil {
		started(listener.Addr())
	}
	return group.Wait()
}

func (server *Server) mainServer() *http.Server {
	main := &http.Server{
		Handler: server.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(server.Log.Handler(), slog.LevelDebug), Protocols: &http.Protocols{},
		// A client of gRPC has all its calls on one connection.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
	main.Protocols.SetHTTP1(true)
	if server.certificates != nil {
		main.TLSConfig = server.certificates.config()
		main.Protocols.SetHTTP2(true)
	} else {
		main.Protocols.SetUnencryptedHTTP2(true)
	}
	return main
}

// shutDown ends what is served. Where nobody asked for the end, there is no reason to
// wait for others to notice.
func (server *Server) shutDown(main *http.Server, asked bool) error {
	server.health.ending.Store(true)
	if asked {
		time.Sleep(server.Grace)
	}
	server.stopStreams()
	ctx, cancel := context.WithTimeout(context.Background(), server.Drain)
	defer cancel()
	err := main.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		server.Log.Warn("some calls did not end in time, and were cut off", "after", server.Drain.String())
		err = main.Close()
	}
	server.awaitStreams(ctx)
	return errors.Join(err, server.tracing.end(ctx))
}

// awaitStreams waits until streams have said goodbye: the HTTP server no longer knows
// of a WebSocket.
func (server *Server) awaitStreams(ctx context.Context) {
	ended := make(chan struct{})
	go func() { server.openStreams.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// serveProbes serves health and metrics.
func (server *Server) serveProbes(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	server.health.register(mux)
	mux.Handle("GET /metrics", server.metrics.handler())
	probes := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ReadTimeout: headerTimeout, WriteTimeout: callTimeout, MaxHeaderBytes: maxHeader}
	stopped := context.AfterFunc(ctx, func() { _ = probes.Close() })
	defer stopped()
	return ignoreClosed(probes.Serve(listener))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

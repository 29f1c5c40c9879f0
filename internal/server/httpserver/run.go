// SPDX-License-Identifier: Apache-2.0

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

// Run serves until the context ends, then shuts down in order: first the server is not
// ready any more, so that it gets no new requests; then streams end and clients reconnect
// to another server; then requests finish. started is called with the address once the
// server accepts requests.
func (s *Server) Run(ctx context.Context, started func(net.Addr)) error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("serve at %s: %w", s.Address, err)
	}
	// Probes and certificates are needed until the shutdown is complete.
	background, stopBackground := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBackground()
	group, failed := errgroup.WithContext(ctx)
	if s.certificates != nil {
		group.Go(func() error { return s.certificates.run(background) })
	}
	if s.ProbeAddress != "" {
		probes, err := net.Listen("tcp", s.ProbeAddress)
		if err != nil {
			listener.Close()
			return fmt.Errorf("serve health at %s: %w", s.ProbeAddress, err)
		}
		group.Go(func() error { return s.serveProbes(background, probes) })
	}
	main, limited := s.mainServer(), s.limitConnections(listener)
	group.Go(func() error {
		if s.certificates != nil {
			return ignoreClosed(main.ServeTLS(limited, "", ""))
		}
		return ignoreClosed(main.Serve(limited))
	})
	group.Go(func() error {
		<-failed.Done()
		defer stopBackground()
		return s.shutDown(main, ctx.Err() != nil)
	})
	if started != nil {
		started(listener.Addr())
	}
	return group.Wait()
}

func (s *Server) mainServer() *http.Server {
	main := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug), Protocols: &http.Protocols{},
		// A gRPC client sends all its calls on one connection.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
	main.Protocols.SetHTTP1(true)
	if s.certificates != nil {
		main.TLSConfig = s.certificates.config()
		main.Protocols.SetHTTP2(true)
	} else {
		main.Protocols.SetUnencryptedHTTP2(true)
	}
	return main
}

// shutDown stops serving. It only waits for the grace period if the shutdown was
// requested, not after an error.
func (s *Server) shutDown(main *http.Server, requested bool) error {
	s.health.stopping.Store(true)
	if requested {
		time.Sleep(s.Grace)
	}
	s.stopStreams()
	ctx, cancel := context.WithTimeout(context.Background(), s.Drain)
	defer cancel()
	err := main.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		s.Log.Warn("some requests did not finish in time and were canceled", "after", s.Drain.String())
		err = main.Close()
	}
	s.awaitStreams(ctx)
	return errors.Join(err, s.tracing.end(ctx))
}

// awaitStreams waits until streams have sent their last message: the HTTP server does not
// track WebSockets.
func (s *Server) awaitStreams(ctx context.Context) {
	ended := make(chan struct{})
	go func() { s.openStreams.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// serveProbes serves health and metrics.
func (s *Server) serveProbes(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	s.health.register(mux)
	mux.Handle("GET /metrics", s.metrics.handler())
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

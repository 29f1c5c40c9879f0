// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 20 * time.Second
	// idleTimeout is longer than the usual time between two reports of a job.
	idleTimeout    = time.Minute
	maxHeaderBytes = 16 << 10
	stopTimeout    = 5 * time.Second
)

// Server serves the handler on the leading replica.
type Server struct {
	Port    int32
	Handler http.Handler
	// Certificate of the port.
	Certificate func() (*tls.Certificate, error)
	// Announce makes the Service lead to this replica. It is called after the port is open.
	Announce func(context.Context)
}

// NeedLeaderElection is true: reports are kept in the memory of one process.
func (*Server) NeedLeaderElection() bool { return true }

// Start serves until the context is done.
func (s *Server) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(int(s.Port))))
	if err != nil {
		return fmt.Errorf("listen for reports: %w", err)
	}
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: bodyTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		BaseContext: func(net.Listener) context.Context { return ctrl.LoggerInto(context.WithoutCancel(ctx), ctrl.Log) },
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.Certificate()
		}},
	}
	announcing, stop := context.WithCancel(ctx)
	defer stop()
	go s.Announce(announcing)
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve reports: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop serving reports: %w", err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// handshakeTimeout is how long a client may take to log in.
	handshakeTimeout = 10 * time.Second
	// launchUser is the prefix of user names that identify a launcher.
	launchUser = "launch-"
)

// Worker is an SSH server without requirements on its container: no passwd entry, no
// user, no capability, no configuration file. It runs commands for clients with the job's
// key, with the environment and in the working directory of the container.
type Worker struct {
	config    *ssh.ServerConfig
	log       *slog.Logger
	processes *processes
	ranks     *rankReader
	logins    *logins

	mutex       sync.Mutex
	launch      string
	connections map[ssh.Conn]bool
}

// NewWorker returns a worker with a host key, for clients with an authorized key.
func NewWorker(hostKey ssh.Signer, authorized []ssh.PublicKey, log *slog.Logger) *Worker {
	worker := &Worker{log: log, processes: newProcesses(), ranks: newRankReader(), logins: newLogins(), connections: map[ssh.Conn]bool{}}
	worker.config = &ssh.ServerConfig{
		Config:        algorithms(),
		ServerVersion: "SSH-2.0-Trireme",
		MaxAuthTries:  3,
		PublicKeyCallback: func(_ ssh.ConnMetadata, offered ssh.PublicKey) (*ssh.Permissions, error) {
			for _, key := range authorized {
				if bytes.Equal(key.Marshal(), offered.Marshal()) {
					return nil, nil
				}
			}
			return nil, errors.New("the key is not the job's")
		},
	}
	worker.config.AddHostKey(hostKey)
	return worker
}

// Serve accepts connections until the listener is closed or the context is done.
func (w *Worker) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		connection, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			// For example too many open files, which may pass.
			w.log.Warn("accept", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		w.logins.add(connection)
		go w.serveConnection(connection)
	}
}

// serveConnection handles the login of one connection and serves it.
func (w *Worker) serveConnection(connection net.Conn) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(handshakeTimeout))
	session, channels, requests, err := ssh.NewServerConn(connection, w.config)
	w.logins.remove(connection)
	if err != nil {
		// Only for debugging: probes open the port without a login.
		w.log.Debug("login", "from", connection.RemoteAddr(), "error", err)
		return
	}
	_ = connection.SetDeadline(time.Time{})
	w.newLaunch(session.User())
	w.track(session, true)
	defer w.track(session, false)
	go w.answer(session, requests)
	for channel := range channels {
		if channel.ChannelType() != "session" {
			_ = channel.Reject(ssh.Prohibited, fmt.Sprintf("%s is not allowed", channel.ChannelType()))
			continue
		}
		accepted, requests, err := channel.Accept()
		if err != nil {
			return
		}
		go w.session(accepted, requests)
	}
}

func (w *Worker) track(connection ssh.Conn, open bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if open {
		w.connections[connection] = true
	} else {
		delete(w.connections, connection)
	}
}

// stoppingRequest announces to clients that the worker terminates.
const stoppingRequest = "stopping@trireme"

// stoppingPatience limits the wait for clients that do not read.
const stoppingPatience = 300 * time.Millisecond

// announceStop tells clients that the worker terminates. Without it, mpirun would report
// the ranks that are terminated as the cause.
func (w *Worker) announceStop() {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		w.mutex.Lock()
		connections := slices.Collect(maps.Keys(w.connections))
		w.mutex.Unlock()
		var all sync.WaitGroup
		for _, connection := range connections {
			all.Go(func() { _, _, _ = connection.SendRequest(stoppingRequest, false, nil) })
		}
		all.Wait()
	}()
	select {
	case <-sent:
	case <-time.After(stoppingPatience):
	}
}

// newLaunch stops the processes of an earlier launcher at the first login of a new one:
// they would compete with the new ranks for memory and GPUs.
func (w *Worker) newLaunch(user string) {
	if !strings.HasPrefix(user, launchUser) {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.launch != "" && w.launch != user {
		w.log.Info("a new launcher has logged in; stopping the processes of the previous one")
		stopDescendants(0)
	}
	w.launch = user
}

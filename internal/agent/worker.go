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
	// launchUser is how the logins of one launcher are told from another's.
	launchUser = "launch-"
)

// Worker is an SSH server that needs nothing of its container: no passwd entry,
// no user, no capability, no configuration file. It runs commands for whoever
// holds the job's key, with the environment and in the directory of the
// container.
type Worker struct {
	config    *ssh.ServerConfig
	log       *slog.Logger
	processes *processes
	logins    *logins

	mutex       sync.Mutex
	launch      string
	connections map[ssh.Conn]bool
}

// NewWorker is a worker with a host key that lets in the holders of any of the
// authorized keys.
func NewWorker(hostKey ssh.Signer, authorized []ssh.PublicKey, log *slog.Logger) *Worker {
	worker := &Worker{log: log, processes: newProcesses(), logins: newLogins(), connections: map[ssh.Conn]bool{}}
	worker.config = &ssh.ServerConfig{
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

// Serve answers until the listener is closed or the context is done.
func (worker *Worker) Serve(ctx context.Context, listener net.Listener) error {
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
			// Such as too many open files: others may end.
			worker.log.Warn("accept", "error", err)
			time.Sleep(50 * time.Millisecond)
			continue
		}
		worker.logins.add(connection)
		go worker.welcome(connection)
	}
}

// welcome lets one connection log in and serves it.
func (worker *Worker) welcome(connection net.Conn) {
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(handshakeTimeout))
	session, channels, requests, err := ssh.NewServerConn(connection, worker.config)
	worker.logins.remove(connection)
	if err != nil {
		// Nobody wants to read of every probe that only looks whether the port is open.
		worker.log.Debug("login", "from", connection.RemoteAddr(), "error", err)
		return
	}
	_ = connection.SetDeadline(time.Time{})
	worker.newLaunch(session.User())
	worker.keep(session, true)
	defer worker.keep(session, false)
	go worker.answer(session, requests)
	for channel := range channels {
		if channel.ChannelType() != "session" {
			_ = channel.Reject(ssh.Prohibited, fmt.Sprintf("%s is not allowed", channel.ChannelType()))
			continue
		}
		accepted, requests, err := channel.Accept()
		if err != nil {
			return
		}
		go worker.session(accepted, requests)
	}
}

func (worker *Worker) keep(connection ssh.Conn, open bool) {
	worker.mutex.Lock()
	defer worker.mutex.Unlock()
	if open {
		worker.connections[connection] = true
	} else {
		delete(worker.connections, connection)
	}
}

// stoppingRequest tells clients that their commands end because the worker does.
const stoppingRequest = "stopping@trireme"

// stoppingPatience is for clients that do not read.
const stoppingPatience = 300 * time.Millisecond

// tellStopping: the ranks will end on a signal, and mpirun will blame them.
func (worker *Worker) tellStopping() {
	told := make(chan struct{})
	go func() {
		defer close(told)
		worker.mutex.Lock()
		connections := slices.Collect(maps.Keys(worker.connections))
		worker.mutex.Unlock()
		var all sync.WaitGroup
		for _, connection := range connections {
			all.Go(func() { _, _, _ = connection.SendRequest(stoppingRequest, false, nil) })
		}
		all.Wait()
	}()
	select {
	case <-told:
	case <-time.After(stoppingPatience):
	}
}

// newLaunch ends what an earlier launcher has left running, at the first login
// of a new one: its ranks would fight with the new ones for memory and GPUs.
func (worker *Worker) newLaunch(user string) {
	if !strings.HasPrefix(user, launchUser) {
		return
	}
	worker.mutex.Lock()
	defer worker.mutex.Unlock()
	if worker.launch != "" && worker.launch != user {
		worker.log.Info("a new launcher has logged in; what the last one left running is ended")
		endDescendants(0)
	}
	worker.launch = user
}

// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
)

// State is the state of a component.
type State string

const (
	// Waiting for components that must be ready before it.
	Waiting State = "Waiting"
	// Starting means that the process is running but not ready yet.
	Starting State = "Starting"
	// Ready means that the last probe succeeded.
	Ready State = "Ready"
	// NotReady means that it was ready before, and the last probe failed.
	NotReady State = "NotReady"
	// Restarting means that the process has exited and will be restarted.
	Restarting State = "Restarting"
	// Stopped means that the supervisor has stopped it.
	Stopped State = "Stopped"
)

// Status is one component as `cluster status` shows it.
type Status struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
	Since    time.Time `json:"since"`
	Message  string    `json:"message,omitempty"`
}

// Report is the response of the supervisor. It does not contain optional components that
// are off.
type Report struct {
	PID        int      `json:"pid"`
	Network    string   `json:"network"`
	Data       string   `json:"data"`
	Components []Status `json:"components"`
	// Kubernetes is the release that the cluster runs, such as 1.36.
	Kubernetes string `json:"kubernetes,omitempty"`
	// NetworkPolicies is true if NetworkPolicies are enforced.
	NetworkPolicies bool `json:"networkPolicies,omitempty"`
}

// Ready reports whether every component is ready.
func (r Report) Ready() bool {
	for _, c := range r.Components {
		if c.State != Ready {
			return false
		}
	}
	return true
}

// worker is a component that a goroutine keeps running.
type worker struct {
	component component.Component
	mutex     sync.Mutex
	status    Status
	everReady bool
}

func (w *worker) set(state State, pid int, message string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.status.State, w.status.PID, w.status.Message, w.status.Since = state, pid, message, time.Now()
}

func (w *worker) died(message string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.status.State, w.status.PID, w.status.Message, w.status.Since = Restarting, 0, message, time.Now()
	w.status.Restarts++
}

// ready records a successful probe and reports whether it was the first.
func (w *worker) ready() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.status.State != Ready {
		w.status.State, w.status.Message, w.status.Since = Ready, "", time.Now()
	}
	first := !w.everReady
	w.everReady = true
	return first
}

// isOff reports whether nobody wants the component; the mutex must be held.
func (w *worker) isOff() bool {
	return w.component.Optional && (w.status.State == Waiting || w.status.State == Stopped)
}

func (w *worker) unready(message string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.status.State == Ready {
		w.status.State, w.status.Since = NotReady, time.Now()
	}
	w.status.Message = message
}

func (s *Supervisor) report() Report {
	report := Report{PID: os.Getpid(), Network: s.layout.Network.Block.String(), Data: s.layout.Data, Kubernetes: s.layout.Kubernetes.Release, NetworkPolicies: s.layout.NetworkPolicies}
	for _, w := range s.workers {
		w.mutex.Lock()
		if !w.isOff() {
			report.Components = append(report.Components, w.status)
		}
		w.mutex.Unlock()
	}
	for _, t := range s.tasks {
		t.mutex.Lock()
		report.Components = append(report.Components, t.status)
		t.mutex.Unlock()
	}
	return report
}

// serve answers on a socket that only root can open.
func (s *Supervisor) serve() (stop func(), err error) {
	socket := s.layout.SupervisorSocket()
	if err := os.RemoveAll(socket); err != nil {
		return nil, fmt.Errorf("supervisor socket: %w", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("supervisor socket: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, fmt.Errorf("supervisor socket: %w", err)
	}
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(s.report())
		}),
	}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}

// Ask gets the report of the running supervisor.
func Ask(ctx context.Context, l layout.Layout) (Report, error) {
	client := http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", l.SupervisorSocket())
			},
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://supervisor/", nil)
	if err != nil {
		return Report{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return Report{}, fmt.Errorf("get the status of the supervisor: %w", err)
	}
	defer response.Body.Close()
	var report Report
	if err := json.NewDecoder(response.Body).Decode(&report); err != nil {
		return Report{}, fmt.Errorf("get the status of the supervisor: %w", err)
	}
	return report, nil
}

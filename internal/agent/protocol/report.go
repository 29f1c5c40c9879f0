// SPDX-License-Identifier: Apache-2.0

package protocol

// Report is the launcher's termination message, as JSON of less than 4 KiB. It contains
// no keys and no environment variables.
type Report struct {
	// Reason is one of the failure reasons of a job, or empty if the run succeeded.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Trouble is why hosts cannot connect, if the gate failed.
	Trouble Trouble `json:"trouble,omitempty"`
	// Host and Rank are where the failure occurred, if that is known. Peer is the host
	// that Host cannot connect to.
	Host string `json:"host,omitempty"`
	Peer string `json:"peer,omitempty"`
	Rank *int   `json:"rank,omitempty"`
	// RankExitCode is the exit code of the rank, and Signal the signal that killed it, as
	// far as mpirun reports them.
	RankExitCode *int `json:"rankExitCode,omitempty"`
	Signal       int  `json:"signal,omitempty"`
	// Error is the line of the program's output that names the error, LastLines are the
	// last lines of it.
	Error     string   `json:"error,omitempty"`
	LastLines []string `json:"lastLines,omitempty"`
	// ExitCode is the exit code of the launcher.
	ExitCode int     `json:"exitCode"`
	Timings  Timings `json:"timings"`
	Hosts    Hosts   `json:"hosts"`
}

// Timings are in seconds.
type Timings struct {
	// DNS and Connect are the times of the slowest worker in the gate.
	DNS     float64 `json:"dns"`
	Connect float64 `json:"connect"`
	// Ports is the duration of the port check.
	Ports float64 `json:"ports"`
	// Init is from the start of the command until mpirun connected to the last host.
	Init float64 `json:"init"`
	// Total is from the start of the launch to its end.
	Total float64 `json:"total"`
}

// Hosts compares the hostfile with the run.
type Hosts struct {
	Expected int `json:"expected"`
	Reached  int `json:"reached"`
	// Missing are some of the hosts that were not used.
	Missing []string `json:"missing,omitempty"`
}

// Reasons of a report: those failure reasons of a job that a launcher can know.
const (
	ReasonSSH      = "SSHConnectionFailed"
	ReasonMPI      = "MPIInitializationFailed"
	ReasonWorker   = "WorkerFailed"
	ReasonTraining = "TrainingError"
	ReasonLauncher = "LauncherFailed"
)

// TerminationLog is where Kubernetes reads a container's last message.
const TerminationLog = "/dev/termination-log"

// Trouble is why a host cannot be reached.
type Trouble string

const (
	// NameNotFound means that DNS does not know the host.
	NameNotFound Trouble = "NameNotFound"
	// Refused means that the host exists and nothing listens on the port.
	Refused Trouble = "Refused"
	// TimedOut means that there is no response: the pod is not running, or the port is
	// blocked.
	TimedOut Trouble = "TimedOut"
	// HostKeyWrong means that another host responds.
	HostKeyWrong Trouble = "HostKeyWrong"
	// KeyRefused means that the host refuses the job's key.
	KeyRefused Trouble = "KeyRefused"
	// Broken means that the connection failed after the host had responded.
	Broken Trouble = "Broken"
	// Stopped means that the host announced that it terminates.
	Stopped Trouble = "Stopped"
	// NotStarted means that the host lacks the program that mpirun starts.
	NotStarted Trouble = "NotStarted"
	// PortsBlocked means that the host can be reached by SSH, but cannot connect to another
	// host on the ports that MPI uses.
	PortsBlocked Trouble = "PortsBlocked"
	// NoFreePort means that all ports in the range for MPI are in use on the host.
	NoFreePort Trouble = "NoFreePort"
)

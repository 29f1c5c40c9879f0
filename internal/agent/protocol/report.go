package protocol

// Report is what the launcher's termination message says, as JSON of less than
// 4 KiB. It holds no key and nothing of an environment.
type Report struct {
	// Reason is one of the failure reasons of a job, or empty if the run ended well.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Trouble is what kept the hosts from each other, if the gate was not passed.
	Trouble Trouble `json:"trouble,omitempty"`
	// Host and Rank are where it went wrong, if that is known. Peer is the host that
	// Host cannot connect to.
	Host string `json:"host,omitempty"`
	Peer string `json:"peer,omitempty"`
	Rank *int   `json:"rank,omitempty"`
	// RankExitCode is what the rank exited with, Signal what ended it, as far as mpirun
	// says so.
	RankExitCode *int `json:"rankExitCode,omitempty"`
	Signal       int  `json:"signal,omitempty"`
	// Error is the line of the program's output that names the error, LastLines are the
	// last lines of it.
	Error     string   `json:"error,omitempty"`
	LastLines []string `json:"lastLines,omitempty"`
	// ExitCode is the launcher's own.
	ExitCode int     `json:"exitCode"`
	Timings  Timings `json:"timings"`
	Hosts    Hosts   `json:"hosts"`
}

// Timings are in seconds.
type Timings struct {
	// DNS and Connect are what the slowest worker took in the gate.
	DNS     float64 `json:"dns"`
	Connect float64 `json:"connect"`
	// Ports is the check of the ports between all hosts.
	Ports float64 `json:"ports"`
	// Init is from the start of the command until the last host was asked to
	// start its part.
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
	// NameNotFound: DNS does not know the host.
	NameNotFound Trouble = "NameNotFound"
	// Refused: the host is there and nothing listens.
	Refused Trouble = "Refused"
	// TimedOut: nothing answers: the pod does not run, or something blocks the port.
	TimedOut Trouble = "TimedOut"
	// HostKeyWrong: another machine answers than the one that was meant.
	HostKeyWrong Trouble = "HostKeyWrong"
	// KeyRefused: the host does not let the job's key in.
	KeyRefused Trouble = "KeyRefused"
	// Broken: the host answered, and then something went wrong.
	Broken Trouble = "Broken"
	// Stopped: the host was told to end, and has said so.
	Stopped Trouble = "Stopped"
	// NotStarted: the host was reached, and has not what mpirun wants to start.
	NotStarted Trouble = "NotStarted"
	// PortsBlocked: the host was reached by SSH, and cannot connect to another one on
	// the ports that MPI uses.
	PortsBlocked Trouble = "PortsBlocked"
	// NoFreePort: all ports that MPI is set to use are taken on the host.
	NoFreePort Trouble = "NoFreePort"
)

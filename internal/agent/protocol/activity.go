// SPDX-License-Identifier: Apache-2.0

package protocol

import "time"

// Names of the variables that Kubeflow Trainer's progress protocol defines. Every container
// of a job that can report has them, so that programs that know the protocol report by
// themselves. The agent uses the same token.
const (
	StatusURLVariable   = "KUBEFLOW_TRAINER_SERVER_URL"
	StatusCAVariable    = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
	StatusTokenVariable = "KUBEFLOW_TRAINER_SERVER_TOKEN"
	// StatusDirectory has the token and the CA.
	StatusDirectory = "/var/run/secrets/kubeflow/trainer"
	// StatusToken and StatusCA are files of StatusDirectory.
	StatusToken = "token"
	StatusCA    = "ca.crt"
	// ActivitySuffix is appended to the URL by the agent: programs report to the URL itself.
	ActivitySuffix = "/activity"
	// ProgressPatternVariable is a regular expression that finds the progress in a line of the
	// output: its first group is the step, its second group the number of steps.
	ProgressPatternVariable = "TRIREME_PROGRESS_PATTERN"
)

// Limits of a report. What is larger is cut by the agent and refused by the operator.
const (
	MaxMetrics      = 256
	MaxMetricLength = 64
	// MaxActivityBytes is the size of an Activity as JSON. It is less for small jobs.
	MaxActivityBytes = 4 << 20
	// MaxRanksOfHost is how many ranks of a host are reported, and MaxRanks of a job.
	MaxRanksOfHost = 512
	MaxRanks       = 32 << 10
)

// Activity is what the launcher's agent sends to the operator while the command runs: one
// message for the whole job, with the ranks of all hosts. It contains no environment
// variables, arguments or output.
type Activity struct {
	// Time is the launcher's clock. Only differences of it mean something.
	Time  time.Time `json:"time"`
	Hosts []Host    `json:"hosts,omitempty"`
	// Progress is what the command wrote to its output, if it did.
	Progress *Progress `json:"progress,omitempty"`
	// LastOutput is when the command last wrote a line, of any rank.
	LastOutput *time.Time `json:"lastOutput,omitempty"`
	// Examined is set if the ranks were examined for this message, as a reply had asked. The
	// ranks that run and have no Doing could not be examined.
	Examined bool `json:"examined,omitempty"`
	// Kept are the metrics over time that the agent has kept, as the last reply had asked. It is
	// empty, but not null, if there are none.
	Kept []Curve `json:"kept,omitzero"`
	// Final is set in the last message, after the command has exited.
	Final bool `json:"final,omitempty"`
}

// ActivityReply is the operator's answer.
type ActivityReply struct {
	// IntervalSeconds is when the next message is welcome. It grows with the load.
	IntervalSeconds int `json:"intervalSeconds"`
	// Examine asks for the details that cost something: Doing, WaitsFor and Stack.
	Examine bool `json:"examine,omitempty"`
	// Newest are the newest points of the metrics, each as a curve of one point, as far as they
	// were received since the last answer. The agent keeps them: an operator has metrics over
	// time in memory, and the next one does not know them.
	Newest []Curve `json:"newest,omitempty"`
	// Recall asks for what the agent has kept.
	Recall bool `json:"recall,omitempty"`
}

// Limits of what an agent keeps of metrics.
const (
	MaxCurves = 32
	// MaxPoints is for one curve, MaxKeptPoints for all curves of an agent.
	MaxPoints     = 200
	MaxKeptPoints = 2000
)

// Curve is a metric over time.
type Curve struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is a value of a metric at a time, and the step that the training was at. Its names
// are short, because there are many.
type Point struct {
	// Milliseconds since 1970, by the operator's clock.
	Milliseconds int64   `json:"t"`
	Step         *int64  `json:"s,omitempty"`
	Value        float64 `json:"v"`
}

// Host is one host of the job with the ranks that run there.
type Host struct {
	Name string `json:"name"`
	// Unknown is why the host's ranks are not known, such as a connection that failed.
	Unknown string `json:"unknown,omitempty"`
	Ranks   []Rank `json:"ranks,omitempty"`
}

// Rank is one process of MPI_COMM_WORLD.
type Rank struct {
	Rank int `json:"rank"`
	PID  int `json:"pid"`
	// State is the letter of the process in /proc: R, S, D, T, Z.
	State string `json:"state"`
	// Started is when the process was started.
	Started time.Time `json:"started"`
	// CPUSeconds is the time that all threads have run, with the rank's child processes.
	CPUSeconds float64 `json:"cpuSeconds"`
	// Memory is the resident memory in bytes.
	Memory       int64 `json:"memory"`
	BytesRead    int64 `json:"bytesRead"`
	BytesWritten int64 `json:"bytesWritten"`
	// LastOutput is when the rank last wrote a line, if that is known.
	LastOutput *time.Time `json:"lastOutput,omitempty"`
	// Step is the last step that the rank itself reported.
	Step *int64 `json:"step,omitempty"`
	// Doing is what the rank was doing when it was examined.
	Doing Doing `json:"doing,omitempty"`
	// WaitsFor is the wait channel of the kernel, or the peer of the connection that it waits
	// on, in words of Linux.
	WaitsFor string `json:"waitsFor,omitempty"`
	// Stack has the innermost frames of a Python program, if it allows to read them.
	Stack []string `json:"stack,omitempty"`
}

// Doing is what a rank was doing when it was examined.
type Doing string

const (
	// Computing: the rank runs, outside of MPI.
	Computing Doing = "Computing"
	// SpinningInMPI: the rank runs, and all samples were in the libraries of MPI.
	SpinningInMPI Doing = "SpinningInMPI"
	// Sleeping: the rank waits in the kernel.
	Sleeping Doing = "Sleeping"
	// StoppedBySignal: the rank was stopped by a signal.
	StoppedBySignal Doing = "Stopped"
)

// Progress is how far a program is.
type Progress struct {
	// Step of Of steps. Of is 0 if the number of steps is not known.
	Step *int64 `json:"step,omitempty"`
	Of   int64  `json:"of,omitempty"`
	// Percentage and RemainingSeconds are what the program says; if it does not, they are
	// calculated from the steps.
	Percentage       *int32   `json:"percentage,omitempty"`
	RemainingSeconds *int64   `json:"remainingSeconds,omitempty"`
	Metrics          []Metric `json:"metrics,omitempty"`
}

// Metric is a value that a program reports, such as a loss.
type Metric struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

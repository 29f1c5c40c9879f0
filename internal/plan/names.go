package plan

import (
	"fmt"

	"github.com/trireme-mpi/trireme/internal/job"
)

// Names of the objects that a job is made of. They differ by kind, as users of
// either know them.
type Names struct {
	// Service is also the subdomain that hosts are found under. A TrainJob's is
	// made by JobSet.
	Service       string
	Hostfile      string
	Secret        string
	NetworkPolicy string
	// Launcher is the batch Job of an MPIJob's launcher.
	Launcher string
	// LauncherHost is the launcher's host name.
	LauncherHost string
	// JobSet of a TrainJob.
	JobSet      string
	Initializer string
	// Workspace is the claim that the initializer fetches to.
	Workspace string
	// Snapshot is the runtime as it was when the TrainJob was created.
	Snapshot string
}

// NamesOf are the names of a job's objects.
func NamesOf(made *job.Job) Names {
	names := Names{
		Service:     made.Name + "-worker",
		Hostfile:    made.Name + "-hostfile",
		Initializer: made.Name + "-initializer",
		Snapshot:    made.Name + "-runtime",
	}
	if made.Kind == job.KindMPIJob {
		names.Secret = made.Name + "-ssh-key"
		names.NetworkPolicy = "mpijob-" + made.Name
		names.Launcher = made.Name + "-launcher"
		names.LauncherHost = names.Launcher
		return names
	}
	names.Secret = made.Name + "-ssh"
	names.NetworkPolicy = "trainjob-" + made.Name + "-network"
	names.JobSet = made.Name
	names.LauncherHost = made.Name + "-launcher-0-0"
	if made.Initializer != nil {
		names.Workspace = made.Initializer.ClaimName
		if names.Workspace == "" {
			names.Workspace = made.Name + "-workspace"
		}
	}
	return names
}

// WorkerHost is the host name of a worker: for an MPIJob it is the pod's name,
// for a TrainJob what JobSet and the Indexed Job make of it.
func WorkerHost(made *job.Job, index int32) string {
	if made.Kind == job.KindMPIJob {
		return job.WorkerName(made.Name, index)
	}
	return fmt.Sprintf("%s-worker-0-%d", made.Name, index)
}

// Hosts are the host names that ranks run on, in the order of the hostfile.
func Hosts(made *job.Job) []string {
	hosts := make([]string, 0, max(made.Worker.Replicas, 0)+1)
	if made.LauncherRunsRanks {
		hosts = append(hosts, NamesOf(made).LauncherHost)
	}
	for index := range made.Worker.Replicas {
		hosts = append(hosts, WorkerHost(made, index))
	}
	return hosts
}

package plan

import (
	"fmt"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Names of the objects that a job is made of. They differ by kind, as users of
// either know them.
type Names struct {
	// Service is also the subdomain that hosts are found under.
	Service       string
	Hostfile      string
	Secret        string
	NetworkPolicy string
	// Workload is the JobSet of a TrainJob, and the launcher's batch Job of an MPIJob.
	Workload string
	// LauncherHost is the launcher's host name.
	LauncherHost string
	// Workspace is the claim that the initializer fetches to.
	Workspace string
}

// NamesOf are the names of a job's objects.
func NamesOf(made *job.Job) Names {
	traits := made.Kind.Traits()
	names := Names{
		Service:       made.Name + "-worker",
		Hostfile:      made.Name + "-hostfile",
		Secret:        made.Name + traits.SecretSuffix,
		NetworkPolicy: traits.NetworkPolicyPrefix + made.Name + traits.NetworkPolicySuffix,
		Workload:      made.Name + traits.WorkloadSuffix,
		LauncherHost:  made.Name + traits.LauncherHostSuffix,
	}
	if made.Initializer != nil {
		names.Workspace = made.Initializer.ClaimName
		if names.Workspace == "" {
			names.Workspace = made.Name + "-workspace"
		}
	}
	return names
}

// WorkerHost is the host name of a worker.
func WorkerHost(made *job.Job, index int32) string {
	return fmt.Sprintf("%s%s%d", made.Name, made.Kind.Traits().WorkerHostInfix, index)
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

// PodName is the name of a pod. It is fixed by role, index and restart, so that no
// pod can exist twice.
func PodName(made *job.Job, role string, index, restart int32) string {
	switch role {
	case training.RoleLauncher:
		return fmt.Sprintf("%s-r%d", NamesOf(made).LauncherHost, restart)
	case training.RoleInitializer:
		return fmt.Sprintf("%s-initializer-r%d", made.Name, restart)
	}
	name := WorkerHost(made, index)
	if made.Kind.Traits().RestartsAsWhole {
		name = fmt.Sprintf("%s-r%d", name, restart)
	}
	return name
}

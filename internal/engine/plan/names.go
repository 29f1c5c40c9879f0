// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Names of the objects of a job. They depend on the kind: users know them from
// mpi-operator and JobSet.
type Names struct {
	// Service is also the subdomain of the host names.
	Service       string
	Hostfile      string
	Secret        string
	NetworkPolicy string
	// Workload is the JobSet of a TrainJob, and the launcher's batch Job of an MPIJob.
	Workload string
	// LauncherHost is the launcher's host name.
	LauncherHost string
	// Workspace is the PVC that the initializer fetches to.
	Workspace string
}

// NamesOf are the names of a job's objects.
func NamesOf(j *job.Job) Names {
	traits := j.Kind.Traits()
	names := Names{
		Service:       j.Name + traits.ServiceSuffix,
		Hostfile:      j.Name + "-hostfile",
		Secret:        j.Name + traits.SecretSuffix,
		NetworkPolicy: traits.NetworkPolicyPrefix + j.Name + traits.NetworkPolicySuffix,
		Workload:      j.Name + traits.WorkloadSuffix,
		LauncherHost:  j.Name + traits.LauncherHostSuffix,
	}
	if j.Set != nil && j.Set.Subdomain != "" {
		names.Service = j.Set.Subdomain
	}
	if j.Initializer != nil {
		names.Workspace = j.Initializer.ClaimName
		if names.Workspace == "" {
			names.Workspace = j.Name + "-workspace"
		}
	}
	return names
}

// WorkerHost is the host name of a worker.
func WorkerHost(j *job.Job, index int32) string {
	return fmt.Sprintf("%s%s%d", j.Name, j.Kind.Traits().WorkerHostInfix, index)
}

// Hosts are the host names that ranks run on, in the order of the hostfile.
func Hosts(j *job.Job) []string {
	hosts := make([]string, 0, max(j.Worker.Replicas, 0)+1)
	if j.LauncherRunsRanks {
		hosts = append(hosts, NamesOf(j).LauncherHost)
	}
	for index := range j.Worker.Replicas {
		hosts = append(hosts, WorkerHost(j, index))
	}
	return hosts
}

// PodName is the name of a pod. It is derived from role, index and restart, so that the
// same pod cannot be created twice.
func PodName(j *job.Job, role string, index, restart int32) string {
	switch role {
	case training.RoleLauncher:
		return fmt.Sprintf("%s-r%d", NamesOf(j).LauncherHost, restart)
	case training.RoleInitializer:
		if int(index) < len(j.Steps) {
			return fmt.Sprintf("%s-%s-0-0-r%d", j.Name, j.Steps[index].Name, restart)
		}
		return fmt.Sprintf("%s-initializer-r%d", j.Name, restart)
	}
	name := WorkerHost(j, index)
	if j.Kind.Traits().RestartsAsWhole {
		name = fmt.Sprintf("%s-r%d", name, restart)
	}
	return name
}

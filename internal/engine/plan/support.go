package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	cleanAll     = training.CleanPodPolicyAll
	cleanRunning = training.CleanPodPolicyRunning
)

// discoverHosts prints the workers that can be reached, as elastic programs
// written for mpi-operator expect it.
const discoverHosts = "#!/bin/sh\nexec " + protocol.Path + " hosts\n"

// support are the objects that the pods of a job refer to. The Secret has no
// data yet: keys are the one thing that is not derived from the job.
func supportObjects(j *job.Job, env Environment) []gang.Object {
	names := NamesOf(j)
	objects := []gang.Object{}
	if j.NetworkPolicy != "" {
		objects = append(objects, NetworkPolicy(j, env.EgressPorts))
	}
	return append(objects,
		&corev1.Service{
			ObjectMeta: objectMeta(j, names.Service),
			// It selects no pods: Trireme writes its Addresses. Hosts are called before they
			// are ready: that is what the gate is for.
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true},
		},
		&corev1.ConfigMap{
			ObjectMeta: objectMeta(j, names.Hostfile),
			Data:       map[string]string{hostfileFile: Hostfile(j, Hosts(j)), discoverHostsFile: discoverHosts},
		},
		&corev1.Secret{ObjectMeta: objectMeta(j, names.Secret), Type: corev1.SecretTypeOpaque})
}

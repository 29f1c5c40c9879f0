// SPDX-License-Identifier: Apache-2.0

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

// discoverHosts prints the reachable workers. Elastic programs that were written for
// mpi-operator run it.
const discoverHosts = "#!/bin/sh\nexec " + protocol.Path + " hosts\n"

// supportObjects are the objects that the pods of a job refer to. The Secret has no
// keys here, because keys are random and this package is pure; the operator adds them.
func supportObjects(j *job.Job, env Environment) []gang.Object {
	names := NamesOf(j)
	objects := claims(j)
	if j.NetworkPolicy != "" {
		objects = append(objects, NetworkPolicy(j, env.EgressPorts, env.Reports))
	}
	return append(objects,
		&corev1.Service{
			ObjectMeta: objectMeta(j, names.Service),
			// No selector: Trireme writes its EndpointSlices, see Addresses. Not-ready pods
			// are published, because the gate connects to workers until they are ready.
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true},
		},
		&corev1.ConfigMap{
			ObjectMeta: objectMeta(j, names.Hostfile),
			Data:       map[string]string{hostfileFile: Hostfile(j, Hosts(j)), discoverHostsFile: discoverHosts},
		},
		&corev1.Secret{ObjectMeta: objectMeta(j, names.Secret), Type: corev1.SecretTypeOpaque, Data: secretData(env)})
}

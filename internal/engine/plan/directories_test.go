// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"path"
	"testing"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// The agent does not import the model, so both have the same constants.
func TestModelAndAgentAgree(t *testing.T) {
	for _, pair := range [][2]string{
		{job.AgentDirectory, path.Dir(protocol.Path)}, {job.KeyDirectory, protocol.KeyDirectory}, {job.ClockDirectory, path.Dir(protocol.ClockFile)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("the model has %s, the agent %s", pair[0], pair[1])
		}
	}
	if job.AgentPort != protocol.Port {
		t.Errorf("the model has %d, the agent %d", job.AgentPort, protocol.Port)
	}
}

package plan

import (
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/pure"
)

// A plan is made from what it is handed: it must not be able to ask a cluster.
func TestPlanReachesNoCluster(t *testing.T) {
	pure.ReachesNoCluster(t)
}

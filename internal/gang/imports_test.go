package gang

import (
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/pure"
)

// The plan may use this package, so it must not be able to ask a cluster. No
// scheduler's own module may become a dependency either.
func TestGangReachesNoCluster(t *testing.T) {
	pure.ReachesNoCluster(t, "sigs.k8s.io/scheduler-plugins", "volcano.sh")
}

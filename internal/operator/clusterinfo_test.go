// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	discovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// The reconcilers of both kinds use it in parallel, while it is renewed. The race detector
// checks that.
func TestClusterInfoIsShared(t *testing.T) {
	settings := config.Default()
	settings.ClusterDomain, settings.Agent.Delivery = "cluster.local", config.DeliveryInitContainer
	cluster, err := newClusterInfo(settings, nil, &discovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &version.Info{GitVersion: "v1.31.0"}})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 20 {
				cluster.mutex.Lock()
				cluster.asked = time.Time{}
				cluster.mutex.Unlock()
				_, obstacle, err := cluster.environmentOf(t.Context(), &job.Job{Kind: job.KindMPIJob}, diagnosis.Previous{})
				if err != nil || obstacle == nil || obstacle.Reason != "KubernetesTooOld" {
					t.Errorf("obstacle %+v, %v", obstacle, err)
				}
			}
		})
	}
	group.Wait()
}

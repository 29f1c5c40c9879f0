// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator/reports"
)

// recorder is a registry that remembers the descriptions of what is registered.
type recorder struct {
	prometheus.Registerer
	descriptions []string
}

func (r *recorder) Register(collector prometheus.Collector) error {
	r.descriptions = append(r.descriptions, described(collector)...)
	return nil
}

func (r *recorder) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		_ = r.Register(collector)
	}
}

func described(collector prometheus.Collector) (texts []string) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		collector.Describe(descriptions)
		close(descriptions)
	}()
	for one := range descriptions {
		texts = append(texts, one.String())
	}
	return texts
}

// The reference has every metric that the reconcilers register, and no other.
func TestMetricsAreThoseRegistered(t *testing.T) {
	registered, settings := &recorder{}, config.Default()
	settings.ClusterDomain = "cluster.local"
	if _, err := NewReconcilers(Parts{Registry: registered, Settings: settings}); err != nil {
		t.Fatal(err)
	}
	if _, err := reports.NewStore(clock.RealClock{}, registered); err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, collector := range Metrics() {
		documented = append(documented, described(collector)...)
	}
	slices.Sort(registered.descriptions)
	slices.Sort(documented)
	if diff := cmp.Diff(registered.descriptions, documented); diff != "" {
		t.Errorf("metrics of the reference (-registered +documented):\n%s", diff)
	}
}

// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

var (
	kinds     = []job.Kind{job.KindMPIJob, job.KindTrainJob}
	templates = []training.NetworkPolicyTemplate{training.NetworkPolicyDefault, training.NetworkPolicyRestricted}
)

// openPort is what the operator leaves open if it is not configured otherwise.
var openPort = []int32{443}

func (when when) under(template training.NetworkPolicyTemplate) bool {
	return when == always || when == byDefault && template == training.NetworkPolicyDefault
}

// broken are the flows that a policy judges otherwise than promised, with what
// it says of them.
func broken(policy *networkingv1.NetworkPolicy, kind job.Kind, template training.NetworkPolicyTemplate) map[string]bool {
	wrong := map[string]bool{}
	for sentence, flow := range clusterOf(kind).flows() {
		passes := reaches(policy, flow.from, flow.to, flow.port, flow.protocol)
		if passes != flow.passes.under(template) {
			wrong[sentence] = passes
		}
	}
	return wrong
}

func TestWhoReachesWhom(t *testing.T) {
	for _, kind := range kinds {
		for _, template := range templates {
			t.Run(fmt.Sprintf("%s/%s", kind, template), func(t *testing.T) {
				policy := plan.NetworkPolicy(jobOf(kind, template), openPort, nil)
				for sentence, passes := range broken(policy, kind, template) {
					t.Errorf("%s: let through is %t", sentence, passes)
				}
			})
		}
	}
}

// A rule that can go without a flow noticing is superfluous, or not tested.
func TestEveryPartOfAPolicyMatters(t *testing.T) {
	for _, kind := range kinds {
		for _, template := range templates {
			policy := plan.NetworkPolicy(jobOf(kind, template), openPort, nil)
			mutants := mutantsOf(policy)
			t.Logf("%s, %s: %d mutants", kind, template, len(mutants))
			for name, mutant := range mutants {
				t.Run(fmt.Sprintf("%s/%s/%s", kind, template, name), func(t *testing.T) {
					if len(broken(mutant, kind, template)) == 0 {
						t.Error("nobody notices")
					}
				})
			}
		}
	}
}

func TestPortsAreConfigured(t *testing.T) {
	tests := map[string]struct {
		ports []int32
		open  map[int]bool
	}{
		"with the port of a store": {ports: []int32{443, 9000}, open: map[int]bool{443: true, 9000: true, 8443: false}},
		"another than 443":         {ports: []int32{8443}, open: map[int]bool{443: false, 9000: false, 8443: true}},
		"none":                     {ports: nil, open: map[int]bool{443: false, 9000: false, 8443: false}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, kind := range kinds {
				policy := plan.NetworkPolicy(jobOf(kind, training.NetworkPolicyRestricted), tc.ports, nil)
				in := clusterOf(kind)
				for port, open := range tc.open {
					if got := reaches(policy, in.initializer, in.internet, port, tcp); got != open {
						t.Errorf("%s: port %d is open: %t, want %t", kind, port, got, open)
					}
				}
				if !reaches(policy, in.initializer, in.dns, 53, udp) || !reaches(policy, in.launcher, in.worker, 2222, tcp) {
					t.Errorf("%s: DNS or the job itself is closed", kind)
				}
			}
		})
	}
}

// Pods report to the operator, on its port alone.
func TestReportsReachTheOperator(t *testing.T) {
	operator := map[string]string{"app.kubernetes.io/name": "trireme", "app.kubernetes.io/component": "operator"}
	to := func(namespace string, labels map[string]string) end {
		return end{namespace: namespace, labels: labels, address: "10.0.4.2"}
	}
	for _, kind := range kinds {
		reports := &plan.Reports{Namespace: "trireme-system", Port: 9444}
		policy := plan.NetworkPolicy(jobOf(kind, training.NetworkPolicyRestricted), nil, reports)
		in := clusterOf(kind)
		for _, tc := range []struct {
			name string
			to   end
			port int
			open bool
		}{
			{"the port for reports", to("trireme-system", operator), 9444, true},
			{"another port of the operator", to("trireme-system", operator), 9443, false},
			{"another pod beside the operator", to("trireme-system", map[string]string{"app.kubernetes.io/name": "trireme"}), 9444, false},
			{"a pod with the operator's labels elsewhere", to("team-b", operator), 9444, false},
		} {
			for _, from := range []end{in.launcher, in.worker} {
				if got := reaches(policy, from, tc.to, tc.port, tcp); got != tc.open {
					t.Errorf("%s: %s is open: %t, want %t", kind, tc.name, got, tc.open)
				}
			}
		}
		closed := plan.NetworkPolicy(jobOf(kind, training.NetworkPolicyRestricted), nil, nil)
		if reaches(closed, in.worker, to("trireme-system", operator), 9444, tcp) {
			t.Errorf("%s: the port is open although no reports are received", kind)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// BenchmarkGate is the gate with and without the check of ports. Client and servers are
// in one process, so that it is the sum of the work of all hosts.
func BenchmarkGate(b *testing.B) {
	keys := newKeys(b)
	caller := newTestClient(b, keys)
	caller.port = serveEverywhere(b, keys)
	for _, hosts := range []int{1, 4, 16, 64} {
		for _, checks := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d hosts, ports checked %t", hosts, checks), func(b *testing.B) {
				before := cpuTime(b)
				for b.Loop() {
					gate := &gate{client: caller, timeout: time.Minute}
					if checks {
						gate.ports = newPortCheck(mpi.Ports{}, "launcher", false)
					}
					got := gate.pass(b.Context(), loopbacks(hosts))
					if len(got.unreached)+len(got.blocked) > 0 {
						b.Fatalf("not reached: %+v, %+v", got.unreached, got.blocked)
					}
				}
				// It depends less on what else the machine does than the time does.
				b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

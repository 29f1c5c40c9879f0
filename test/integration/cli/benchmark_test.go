// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

// BenchmarkOdh measures whole commands, from the start of the process to its end:
// `make bench-cli` runs it. Goals: version below 100 ms, a completed name below
// 300 ms, a list of 5,000 jobs below 2 s.
func BenchmarkOdh(b *testing.B) {
	cluster := startCluster(b)
	namespace := cluster.namespace(b)
	cluster.fill(b, namespace, 5000)
	for _, measured := range []struct {
		name      string
		arguments []string
	}{
		{"version", []string{"version"}},
		{"complete-a-name", []string{"__complete", "trainjob", "describe", "-n", namespace, "job-0042"}},
		{"list-5000", []string{"trainjob", "get", "-n", namespace}},
		{"list-5000-wide", []string{"trainjob", "get", "-n", namespace, "-o", "wide"}},
		{"list-5000-json", []string{"trainjob", "get", "-n", namespace, "-o", "json"}},
	} {
		b.Run(measured.name, func(b *testing.B) {
			for b.Loop() {
				run(b, cluster.kubeconfig, "", measured.arguments...).wantOK(b)
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/run")
		})
	}
}

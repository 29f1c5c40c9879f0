// SPDX-License-Identifier: Apache-2.0

package cli

import "testing"

func TestNamespacePrepare(t *testing.T) {
	checkGolden(t, "namespace", map[string]struct {
		session
		line string
	}{
		"dry run":          {line: "namespace prepare vision --editor group:vision --quota requests.cpu=64,pods=100 --dry-run=client"},
		"yaml":             {line: "namespace prepare vision --viewer user:auditor --isolation Job --dry-run=client -o yaml"},
		"system namespace": {line: "namespace prepare kube-system"},
		"wrong flags":      {line: "namespace prepare vision --editor alice --quota cpu --isolation job --egress-ports 0"},
		"wrong output":     {line: "namespace prepare vision -o wide"},
		"without a name":   {line: "namespace prepare"},
		"no permission":    {line: "namespace prepare vision", session: session{answers: forbidden()}},
		"missing secret":   {line: "namespace prepare vision --pull-secret registry/robot", session: session{answers: plainCluster}},
	})
}

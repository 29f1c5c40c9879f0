// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var reportsService = &corev1.Service{
	ObjectMeta: metav1.ObjectMeta{Namespace: "trireme-system", Name: "trireme-reports"},
	Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 7000}}},
}

func TestNamespacePrepare(t *testing.T) {
	checkGolden(t, "namespace", map[string]struct {
		session
		line string
	}{
		"dry run":          {line: "namespace prepare vision --editor group:vision --quota requests.cpu=64,pods=100 --dry-run=client"},
		"yaml":             {line: "namespace prepare vision --viewer user:auditor --isolation Job --dry-run=client -o yaml"},
		"another port":     {line: "namespace prepare vision --isolation Job --dry-run=client -o yaml", session: session{objects: []client.Object{reportsService}}},
		"the port is set":  {line: "namespace prepare vision --isolation Job --reports-port 7001 --dry-run=client -o yaml", session: session{objects: []client.Object{reportsService}}},
		"system namespace": {line: "namespace prepare kube-system"},
		"wrong flags":      {line: "namespace prepare vision --editor alice --quota cpu --isolation job --egress-ports 0"},
		"wrong output":     {line: "namespace prepare vision -o wide"},
		"without a name":   {line: "namespace prepare"},
		"no permission":    {line: "namespace prepare vision", session: session{answers: forbidden()}},
		"missing secret":   {line: "namespace prepare vision --pull-secret registry/robot", session: session{answers: plainCluster}},
	})
}

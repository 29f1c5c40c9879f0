// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const kubernetesRefusal = `pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`

func TestIsExceeded(t *testing.T) {
	exceeds := metav1.StatusCause{Type: CauseExceeded, Field: "spec.trainer.numNodes", Message: "x"}
	otherFault := metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: "spec", Message: "Insufficient namespace quota: requested 4 GPUs, available 1 GPU"}
	for name, test := range map[string]struct {
		message string
		causes  []metav1.StatusCause
		want    bool
	}{
		"a quota of Kubernetes":    {message: kubernetesRefusal, want: true},
		"PodSecurity":              {message: `pods "a" is forbidden: violates PodSecurity "restricted:latest"`},
		"no message":               {},
		"our admission":            {causes: []metav1.StatusCause{exceeds}, want: true},
		"several quotas":           {causes: []metav1.StatusCause{exceeds, exceeds}, want: true},
		"a quota and another":      {message: kubernetesRefusal, causes: []metav1.StatusCause{exceeds, otherFault}},
		"only the text of a quota": {message: "Error: Quota exceeded", causes: []metav1.StatusCause{otherFault}},
	} {
		if got := IsExceeded(metav1.Status{Message: test.message, Details: &metav1.StatusDetails{Causes: test.causes}}); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !IsExceeded(metav1.Status{Message: kubernetesRefusal}) {
		t.Error("a status without details")
	}
}

func TestParseExceeded(t *testing.T) {
	if name, found := ParseExceeded(kubernetesRefusal); name != "small" || !found {
		t.Errorf("%q, %v", name, found)
	}
	if name, found := ParseExceeded("Error: Quota exceeded"); found {
		t.Errorf("%q", name)
	}
}

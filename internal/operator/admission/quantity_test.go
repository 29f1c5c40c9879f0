// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// A quantity of which nobody can compute all digits is refused before it is decoded.
// This one is small enough for the test that fails.
func TestHugeQuantity(t *testing.T) {
	raw := `{"apiVersion": "kubeflow.org/v2alpha1", "kind": "TrainJob", "spec": {"trainer": {"resourcesPerNode": {"limits": {"cpu": "1E99999"}}}}}`
	request := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(raw)}}}
	got, _ := answer(t.Context(), validator[*v2alpha1.TrainJob]{}, untouched(t), admission.NewDecoder(scheme), request, func() *v2alpha1.TrainJob { return &v2alpha1.TrainJob{} })
	if want := "spec.trainer.resourcesPerNode.limits.cpu: 1E99999 is too large or too small for a quantity"; got.Allowed || !strings.Contains(got.Result.Message, want) {
		t.Errorf("the answer is %+v", got.Result)
	}
}

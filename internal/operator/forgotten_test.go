package operator

import (
	"reflect"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// Whatever is remembered of a job is forgotten with it, also by whoever comes to
// remember more.
func TestEverythingIsForgotten(t *testing.T) {
	memory := &recently{}
	now := time.Now()
	memory.add("a", plan.State{Stage: plan.Active}, now)
	memory.isDue("a", now, time.Second)
	memory.removed("a", &corev1.Secret{})
	memory.wrote(writtenKey{job: "a"}, &v2beta1.MPIJob{ObjectMeta: metav1.ObjectMeta{UID: "a"}})
	memory.wrote(writtenKey{job: "a", isWorkload: true}, &batchv1.Job{})
	memory.obstruct("a", &notYet{})
	memory.publish("a", nil, now)
	lengths := func() map[string]int {
		found := map[string]int{}
		fields := reflect.ValueOf(memory).Elem()
		for i := range fields.NumField() {
			if fields.Field(i).Kind() == reflect.Map {
				found[fields.Type().Field(i).Name] = fields.Field(i).Len()
			}
		}
		return found
	}
	for name, length := range lengths() {
		if length == 0 {
			t.Errorf("%s has %d entries: this test does not know how to fill it", name, length)
		}
	}
	memory.forgetAll("a")
	for name, length := range lengths() {
		if length != 0 {
			t.Errorf("%s keeps %d entries of a job that is gone", name, length)
		}
	}
}

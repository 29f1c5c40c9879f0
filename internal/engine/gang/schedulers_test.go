// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Each scheduler has a field in podGroupPolicy, each field is a scheduler, and the field
// reaches the job model.
func TestEverySchedulerCanBeSet(t *testing.T) {
	var fields []job.Scheduler
	policyType := reflect.TypeFor[v2alpha1.PodGroupPolicy]()
	for i := range policyType.NumField() {
		field := policyType.Field(i)
		if field.Type.Kind() != reflect.Pointer {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields = append(fields, job.Scheduler(name))
		policy := &v2alpha1.PodGroupPolicy{}
		reflect.ValueOf(policy).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		j := job.FromTrainJob(&v2alpha1.TrainJob{}, &v2alpha1.TrainingRuntimeSpec{PodGroupPolicy: policy}, job.Defaults{})
		if j.Gang.Scheduler != job.Scheduler(name) {
			t.Errorf("a runtime with podGroupPolicy.%s has the gang scheduler %q: see runtimeGang in internal/engine/job", name, j.Gang.Scheduler)
		}
	}
	names := Names()
	slices.Sort(fields)
	slices.Sort(names)
	if diff := cmp.Diff(names, fields); diff != "" {
		t.Errorf("schedulers and fields of podGroupPolicy (-schedulers +fields):\n%s", diff)
	}
}

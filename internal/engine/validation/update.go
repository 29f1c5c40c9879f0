// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// UpdateMPIJob validates a change of an MPIJob. Unchanged fields are not validated
// again: the job was accepted with them, or another operator stored them.
func (r *Rules) UpdateMPIJob(old, changed *v2beta1.MPIJob) *Findings {
	findings := &Findings{}
	if changed.DeletionTimestamp != nil {
		return findings
	}
	before, after := old.Spec.DeepCopy(), changed.Spec.DeepCopy()
	suspended := isTrue(before.RunPolicy.Suspend) || isTrue(after.RunPolicy.Suspend)
	after.RunPolicy.Suspend = before.RunPolicy.Suspend
	if before.RunPolicy.ManagedBy == nil && isNamed(after) && job.StartedByTrireme(old) {
		// The operator names itself in its jobs before mpi-operator is started.
		after.RunPolicy.ManagedBy = nil
	}
	if suspended {
		for _, role := range slices.Sorted(maps.Keys(after.MPIReplicaSpecs)) {
			if earlier, replica := before.MPIReplicaSpecs[role], after.MPIReplicaSpecs[role]; earlier != nil && replica != nil {
				at := field.NewPath("spec", "mpiReplicaSpecs").Child(string(role), "template", "metadata")
				exclusiveTopology(findings, at, earlier.Template.Annotations, replica.Template.Annotations)
				ignorePlacement(replica, earlier)
			}
		}
	}
	findings.refuse(unchanged(field.NewPath("spec"), before, after)...)
	changedLabels(findings, &old.ObjectMeta, &changed.ObjectMeta, job.KindMPIJob)
	return findings
}

// isNamed reports whether an MPIJob names Trireme as its controller.
func isNamed(spec *v2beta1.MPIJobSpec) bool {
	return spec.RunPolicy.ManagedBy != nil && *spec.RunPolicy.ManagedBy == training.ManagedByTrireme
}

// ignorePlacement reverts what Kueue may change in the templates of a suspended job:
// labels, annotations and scheduling.
func ignorePlacement(replica, earlier *v2beta1.ReplicaSpec) {
	replica.Template.Labels = earlier.Template.Labels
	replica.Template.Annotations = earlier.Template.Annotations
	replica.Template.Spec.NodeSelector = earlier.Template.Spec.NodeSelector
	replica.Template.Spec.Tolerations = earlier.Template.Spec.Tolerations
	replica.Template.Spec.SchedulingGates = earlier.Template.Spec.SchedulingGates
}

// UpdateTrainJob validates a change of a TrainJob. Kueue does not change it, only its
// JobSet.
func (r *Rules) UpdateTrainJob(old, changed *v2alpha1.TrainJob) *Findings {
	findings := &Findings{}
	if changed.DeletionTimestamp != nil {
		return findings
	}
	before, after := old.Spec.DeepCopy(), changed.Spec.DeepCopy()
	after.Suspend = before.Suspend
	findings.refuse(unchanged(field.NewPath("spec"), before, after)...)
	changedLabels(findings, &old.ObjectMeta, &changed.ObjectMeta, job.KindTrainJob)
	exclusiveTopology(findings, metadata, old.Annotations, changed.Annotations)
	return findings
}

func isTrue(value *bool) bool { return value != nil && *value }

func changedLabels(findings *Findings, old, changed *metav1.ObjectMeta, kind job.Kind) {
	labels(findings, old, changed, kind)
}

// unchanged refuses every difference between two values of the same type, each at its
// own path. Equal quantities such as 1 and 1000m are no difference.
func unchanged(at *field.Path, old, changed any) field.ErrorList {
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(changed)
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	var faults field.ErrorList
	for _, path := range differences(at, before, after) {
		faults = append(faults, field.Forbidden(path, "field is immutable; delete and recreate the job, or create one with another name"))
	}
	return faults
}

func differences(at *field.Path, old, changed any) []*field.Path {
	before, isMap := old.(map[string]any)
	after, both := changed.(map[string]any)
	if isMap && both {
		return mapDifferences(at, before, after)
	}
	beforeList, isList := old.([]any)
	afterList, both := changed.([]any)
	if isList && both && len(beforeList) == len(afterList) {
		var paths []*field.Path
		for i := range beforeList {
			paths = append(paths, differences(at.Index(i), beforeList[i], afterList[i])...)
		}
		return paths
	}
	if reflect.DeepEqual(old, changed) || empty(old) && empty(changed) || sameQuantity(at, old, changed) {
		return nil
	}
	return []*field.Path{at}
}

// empty reports whether a value is nil, an empty list or an empty map, which all mean
// the same.
func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// quantities matches paths whose text is a quantity.
var quantities = regexp.MustCompile(`\.(requests|limits|minResources|overhead)\b|\.(size|sizeLimit)$`)

// sameQuantity reports whether two texts are the same quantity: 1Gi and 1073741824.
func sameQuantity(at *field.Path, old, changed any) bool {
	before, isText := old.(string)
	after, both := changed.(string)
	if !isText || !both || !quantities.MatchString(at.String()) {
		return false
	}
	first, err := resource.ParseQuantity(before)
	if err != nil {
		return false
	}
	second, err := resource.ParseQuantity(after)
	return err == nil && first.Cmp(second) == 0
}

func mapDifferences(at *field.Path, before, after map[string]any) []*field.Path {
	keys := map[string]bool{}
	for _, side := range []map[string]any{before, after} {
		for key := range side {
			keys[key] = true
		}
	}
	var paths []*field.Path
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		child := at.Child(key)
		if strings.ContainsAny(key, "./") {
			child = at.Key(key) // The key of a map, not a field.
		}
		paths = append(paths, differences(child, before[key], after[key])...)
	}
	return paths
}

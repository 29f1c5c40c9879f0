package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

var metadata = field.NewPath("metadata")

// nameFits refuses a name of which the names of pods and services cannot be
// made. longest is the longest of them.
func nameFits(findings *Findings, name, longest string) {
	room := utilvalidation.DNS1035LabelMaxLength - (len(longest) - len(name))
	if len(name) > room {
		findings.refuse(field.Invalid(metadata.Child("name"), name, fmt.Sprintf(
			"has %d characters; at most %d are possible, because the host name %s%s of a pod has at most %d",
			len(name), room, "<name>", strings.TrimPrefix(longest, name), utilvalidation.DNS1035LabelMaxLength)))
		return
	}
	for _, fault := range utilvalidation.IsDNS1035Label(name) {
		findings.refuse(field.Invalid(metadata.Child("name"), name, fault))
	}
}

// Label is a key and its value.
type Label struct{ Key, Value string }

// OwnLabels are on every job, so that kubectl get -l finds it with its pods.
func OwnLabels(kind job.Kind, name string) []Label {
	return []Label{{training.LabelJobName, name}, {training.LabelJobType, kind.Type()}}
}

// labels refuses labels that contradict the job, and warns of a sidecar. Of a
// job that is there already, only what has changed is judged; old is nil for a
// new one.
func labels(findings *Findings, old, meta *metav1.ObjectMeta, kind job.Kind) {
	if old == nil {
		old = &metav1.ObjectMeta{}
	}
	for _, own := range OwnLabels(kind, meta.Name) {
		if value, found := meta.Labels[own.Key]; found && value != own.Value && changed(old.Labels, own.Key, value) {
			findings.refuse(field.Invalid(metadata.Child("labels").Key(own.Key), value,
				fmt.Sprintf("must be %q; the operator sets it where it is left out", own.Value)))
		}
	}
	istio(findings, metadata, old, meta)
}

// notExclusive says why JobSet's exclusive placement is refused, and what to use.
const notExclusive = "is not supported: JobSet's webhook admits the other pods only after the first is scheduled, and a gang is scheduled " +
	"only once all its pods exist. Use podAffinity, topologySpreadConstraints or Kueue's topology-aware scheduling instead"

// exclusiveTopology refuses JobSet's annotation for exclusive placement, unless an
// object has it already.
func exclusiveTopology(findings *Findings, at *field.Path, old, annotations map[string]string) {
	value, found := annotations[training.AnnotationExclusiveTopology]
	if found && changed(old, training.AnnotationExclusiveTopology, value) {
		findings.refuse(field.Forbidden(at.Child("annotations").Key(training.AnnotationExclusiveTopology), notExclusive))
	}
}

// changed tells whether a key has another value than before.
func changed(old map[string]string, key, value string) bool {
	before, found := old[key]
	return !found || before != value
}

// labelsInOrder judges labels as Kubernetes does, and always in the same order.
func labelsInOrder(values map[string]string, at *field.Path) field.ErrorList {
	return inOrder(values, at, metavalidation.ValidateLabels)
}

// annotationsInOrder judges annotations as Kubernetes does, and always in the
// same order.
func annotationsInOrder(values map[string]string, at *field.Path) field.ErrorList {
	return inOrder(values, at, apivalidation.ValidateAnnotations)
}

func inOrder(values map[string]string, at *field.Path, judge func(map[string]string, *field.Path) field.ErrorList) field.ErrorList {
	var faults field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(values)) {
		faults = append(faults, judge(map[string]string{key: values[key]}, at)...)
	}
	return faults
}

// istio judges the key by which Istio decides about a sidecar.
func istio(findings *Findings, at *field.Path, old, meta *metav1.ObjectMeta) {
	for _, place := range []struct {
		name        string
		values, old map[string]string
	}{{"annotations", meta.Annotations, old.Annotations}, {"labels", meta.Labels, old.Labels}} {
		value, found := place.values[training.IstioInject]
		if !found || !changed(place.old, training.IstioInject, value) {
			continue
		}
		// As Istio reads it.
		switch at := at.Child(place.name).Key(training.IstioInject); strings.ToLower(value) {
		case "false", "no", "off", "n":
		case "true", "yes", "on", "y":
			findings.warn(at, "MPI does not work through Istio's sidecar, so Trireme sets this to \"false\" on every pod")
		default:
			findings.refuse(field.NotSupported(at, value, []string{"true", "false"}))
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

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

// nameFits refuses a name that is too long for the names of pods and Services. longest
// is the longest of them.
func nameFits(findings *Findings, name, longest string) {
	maxLength := utilvalidation.DNS1035LabelMaxLength - (len(longest) - len(name))
	if len(name) > maxLength {
		findings.refuse(field.Invalid(metadata.Child("name"), name, fmt.Sprintf(
			"has %d characters; it can have at most %d, because the host name %s%s of a pod can have at most %d",
			len(name), maxLength, "<name>", strings.TrimPrefix(longest, name), utilvalidation.DNS1035LabelMaxLength)))
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

// labels refuses labels that contradict the job, and warns of a sidecar. Of an existing
// job, only changes are validated; old is nil for a new one.
func labels(findings *Findings, old, meta *metav1.ObjectMeta, kind job.Kind) {
	if old == nil {
		old = &metav1.ObjectMeta{}
	}
	for _, own := range OwnLabels(kind, meta.Name) {
		if value, found := meta.Labels[own.Key]; found && value != own.Value && changed(old.Labels, own.Key, value) {
			findings.refuse(field.Invalid(metadata.Child("labels").Key(own.Key), value,
				fmt.Sprintf("must be %q; the operator sets it if it is missing", own.Value)))
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

// changed reports whether a key is new or has another value than before.
func changed(old map[string]string, key, value string) bool {
	before, found := old[key]
	return !found || before != value
}

// labelsInOrder validates labels as Kubernetes does, in sorted order.
func labelsInOrder(values map[string]string, at *field.Path) field.ErrorList {
	return inOrder(values, at, metavalidation.ValidateLabels)
}

// annotationsInOrder validates annotations as Kubernetes does, in sorted order.
func annotationsInOrder(values map[string]string, at *field.Path) field.ErrorList {
	return inOrder(values, at, apivalidation.ValidateAnnotations)
}

func inOrder(values map[string]string, at *field.Path, validate func(map[string]string, *field.Path) field.ErrorList) field.ErrorList {
	var faults field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(values)) {
		faults = append(faults, validate(map[string]string{key: values[key]}, at)...)
	}
	return faults
}

// istio validates the label and annotation for Istio's sidecar.
func istio(findings *Findings, at *field.Path, old, meta *metav1.ObjectMeta) {
	for _, metadata := range []struct {
		name        string
		values, old map[string]string
	}{{"annotations", meta.Annotations, old.Annotations}, {"labels", meta.Labels, old.Labels}} {
		value, found := metadata.values[training.IstioInject]
		if !found || !changed(metadata.old, training.IstioInject, value) {
			continue
		}
		// The values that Istio accepts.
		switch at := at.Child(metadata.name).Key(training.IstioInject); strings.ToLower(value) {
		case "false", "no", "off", "n":
		case "true", "yes", "on", "y":
			findings.warn(at, "MPI does not work through Istio's sidecar, so Trireme sets this to \"false\" on every pod")
		default:
			findings.refuse(field.NotSupported(at, value, []string{"true", "false"}))
		}
	}
}

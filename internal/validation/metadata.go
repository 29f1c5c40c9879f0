package validation

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/job"
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

// labels refuses labels that contradict the job, and warns of a sidecar.
func labels(findings *Findings, meta *metav1.ObjectMeta, kind job.Kind) {
	for _, own := range []struct{ key, value string }{
		{training.LabelJobName, meta.Name},
		{training.LabelJobType, kind.Type()},
	} {
		if value, found := meta.Labels[own.key]; found && value != own.value {
			findings.refuse(field.Invalid(metadata.Child("labels").Key(own.key), value,
				fmt.Sprintf("must be %q; the operator sets it where it is left out", own.value)))
		}
	}
	istio(findings, metadata, meta)
}

// istio judges the key by which Istio decides about a sidecar.
func istio(findings *Findings, at *field.Path, meta *metav1.ObjectMeta) {
	for _, place := range []struct {
		name   string
		values map[string]string
	}{{"annotations", meta.Annotations}, {"labels", meta.Labels}} {
		value, found := place.values[training.IstioInject]
		if !found {
			continue
		}
		switch at := at.Child(place.name).Key(training.IstioInject); value {
		case "false":
		case "true":
			findings.warn(at, "MPI does not work through Istio's sidecar; leave this out, and the operator turns it off")
		default:
			findings.refuse(field.NotSupported(at, value, []string{"true", "false"}))
		}
	}
}

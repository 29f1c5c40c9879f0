// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// CreatorPath is the path of the webhook that sets the creator and the labels of jobs.
const CreatorPath = "/mutate/creator"

// maxCreatorBytes is the maximum length of the creator. User names have no limit, but
// annotations share one of 256 KiB.
const maxCreatorBytes = 1024

// operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// creatorHandler sets the creator of every new job, whatever the client sent, and reverts
// later changes. It also adds the labels that select jobs, and the name that one of them
// contains. Where mpi-operator may run, it names Trireme in new MPIJobs; those of
// mpi-operator it does not change. Admission changes nothing else.
func creatorHandler(share job.Share) http.Handler {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		naming, ours, err := managedByPatch(share, &request.AdmissionRequest)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if !ours {
			return admission.Allowed("")
		}
		object, err := metadataOf(request.Object.Raw)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		patch, err := creatorPatch(&request.AdmissionRequest, object.Annotations)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		patch = append(patch, naming...)
		patch = append(patch, namePatch(object)...)
		patch = append(patch, labelPatch(job.Kind(request.Kind.Kind), object)...)
		if len(patch) == 0 {
			return admission.Allowed("")
		}
		text, err := json.Marshal(patch)
		if err != nil {
			return admission.Errored(http.StatusInternalServerError, err)
		}
		response := admission.Allowed("")
		response.Patch, response.PatchType = text, new(admissionv1.PatchTypeJSONPatch)
		return response
	})}
}

// creatorPatch returns the patch that corrects the annotation; none if it is correct.
func creatorPatch(request *admissionv1.AdmissionRequest, annotations map[string]string) ([]operation, error) {
	want, known := cutText(request.UserInfo.Username, maxCreatorBytes), true
	if request.Operation == admissionv1.Update {
		before, err := metadataOf(request.OldObject.Raw)
		if err != nil {
			return nil, err
		}
		// The creator of a job that another operator stored is unknown.
		want, known = before.Annotations[training.AnnotationCreatedBy]
	}
	got, found := annotations[training.AnnotationCreatedBy]
	path := "/metadata/annotations/" + pointer(training.AnnotationCreatedBy)
	switch {
	case found == known && got == want:
		return nil, nil
	case !known:
		return []operation{{Op: "remove", Path: path}}, nil
	case annotations == nil:
		return []operation{{Op: "add", Path: "/metadata/annotations", Value: map[string]string{training.AnnotationCreatedBy: want}}}, nil
	}
	return []operation{{Op: "add", Path: path, Value: want}}, nil
}

// maxNameBase is the maximum length of generateName in a name, so that the name is a
// valid label.
const maxNameBase = utilvalidation.DNS1123LabelMaxLength - nameSuffixLength

const nameSuffixLength = 5

// namePatch generates the name of a job from generateName as the API server does, and
// sets it in object. The API server does so only after this webhook, which needs the
// name for a label.
func namePatch(object *metav1.PartialObjectMetadata) []operation {
	if object.Name != "" || object.GenerateName == "" {
		return nil
	}
	object.Name = cutText(object.GenerateName, maxNameBase) + utilrand.String(nameSuffixLength)
	return []operation{{Op: "add", Path: "/metadata/name", Value: object.Name}}
}

// labelPatch adds missing labels. A wrong label is kept: validation refuses it, unless it
// was stored before. Validation also refuses a name that is not a valid label, with a
// better message than the API server.
func labelPatch(kind job.Kind, object *metav1.PartialObjectMetadata) []operation {
	missing := map[string]string{}
	var patch []operation
	for _, label := range validation.OwnLabels(kind, object.Name) {
		_, found := object.Labels[label.Key]
		if !found && label.Value != "" && len(utilvalidation.IsValidLabelValue(label.Value)) == 0 {
			missing[label.Key] = label.Value
			patch = append(patch, operation{Op: "add", Path: "/metadata/labels/" + pointer(label.Key), Value: label.Value})
		}
	}
	if object.Labels == nil && len(missing) > 0 {
		return []operation{{Op: "add", Path: "/metadata/labels", Value: missing}}
	}
	return patch
}

// pointer escapes a key for a JSON pointer. Our keys have no tilde.
func pointer(key string) string { return strings.ReplaceAll(key, "/", "~1") }

func metadataOf(raw []byte) (*metav1.PartialObjectMetadata, error) {
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, object); err != nil {
		return nil, fmt.Errorf("read the metadata of a job: %w", err)
	}
	return object, nil
}

// cutText shortens a text to a number of bytes without splitting a character.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

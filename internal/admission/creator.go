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
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trireme-mpi/trireme/api/training"
)

// CreatorPath is where the webhook is that notes the creator of jobs.
const CreatorPath = "/mutate/creator"

// maxCreatorBytes is what of a user's name is kept. Names have no limit of their
// own, but annotations share one of 256 KiB.
const maxCreatorBytes = 1024

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// creatorHandler notes on every new job who created it, whatever the client
// wrote there, and lets nobody change it later. It is the only thing that
// admission changes.
func creatorHandler() http.Handler {
	return &admission.Webhook{Handler: admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		patch, err := creatorPatch(&request.AdmissionRequest)
		if err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
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

// creatorPatch is what makes the annotation right; nothing if it is.
func creatorPatch(request *admissionv1.AdmissionRequest) ([]operation, error) {
	annotations, err := annotationsOf(request.Object.Raw)
	if err != nil {
		return nil, err
	}
	want, known := cutText(request.UserInfo.Username, maxCreatorBytes), true
	if request.Operation == admissionv1.Update {
		before, err := annotationsOf(request.OldObject.Raw)
		if err != nil {
			return nil, err
		}
		// Of a job that another operator stored, nobody knows the creator.
		want, known = before[training.AnnotationCreatedBy]
	}
	got, found := annotations[training.AnnotationCreatedBy]
	path := "/metadata/annotations/" + strings.ReplaceAll(training.AnnotationCreatedBy, "/", "~1")
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

func annotationsOf(raw []byte) (map[string]string, error) {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("read the metadata of a job: %w", err)
	}
	return object.Annotations, nil
}

// cutText shortens a text to a number of bytes, and never within a character.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

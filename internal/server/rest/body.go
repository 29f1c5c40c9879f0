// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// readBody reads the body of a request as JSON. The body may be YAML.
func readBody(request *http.Request) ([]byte, error) {
	kind, _, err := mime.ParseMediaType(request.Header.Get("Content-Type"))
	if request.Header.Get("Content-Type") == "" {
		kind, err = "application/json", nil
	}
	if err != nil || kind != "application/json" && kind != "application/yaml" {
		return nil, apierror.New(http.StatusUnsupportedMediaType, "UnsupportedMediaType", fmt.Sprintf("Content-Type %q is not supported", request.Header.Get("Content-Type")),
			"Send JSON, with Content-Type: application/json, or YAML, with application/yaml")
	}
	content, err := io.ReadAll(request.Body)
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return nil, apierror.New(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", fmt.Sprintf("The body has more than %d bytes", large.Limit), "Remove what is not part of the job")
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, apierror.New(http.StatusRequestTimeout, "RequestTimeout", "The body was not received in time", "Send the body without pauses")
	case err != nil:
		return nil, apierror.Invalid("body", "cannot be read: %v", err)
	case !utf8.Valid(content):
		return nil, apierror.Invalid("body", "is not valid UTF-8")
	case len(strings.TrimSpace(string(content))) == 0:
		return nil, apierror.Invalid("body", "is empty")
	}
	if kind == "application/yaml" {
		return fromYAML(content)
	}
	return content, nil
}

// fromYAML converts a single YAML document to JSON. More than one is an error: the others
// must not be dropped silently.
func fromYAML(content []byte) ([]byte, error) {
	result := []byte("null")
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return result, nil
		}
		var read []byte
		if err == nil {
			read, err = yaml.YAMLToJSONStrict(document)
		}
		switch {
		case err != nil:
			return nil, apierror.Invalid("body", "is not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		case string(read) == "null":
		case string(result) != "null":
			return nil, apierror.Invalid("body", "has more than one document; send each in its own request")
		default:
			result = read
		}
	}
}

// readJob decodes the job in a body. Unknown fields are an error: a misspelt field must
// not be dropped silently.
func readJob(content []byte, kind *jobview.Kind) (client.Object, error) {
	object, unknown, err := kind.Decode(content)
	if err != nil {
		return nil, apierror.Invalid("body", "is not a valid %s: %v", kind.Kind, err)
	}
	if len(unknown) > 0 {
		return nil, unknownFields(string(kind.Kind), fmt.Sprintf("See the fields: kubectl explain %s.spec --recursive", kind.Command), unknown)
	}
	return object, checkType(object, kind.GVK.Kind, kind.GVK.GroupVersion())
}

// unknownFields is the error for a body with unknown or duplicate fields.
func unknownFields(kind, suggestion string, unknown []error) error {
	apiErr := apierror.New(http.StatusBadRequest, "BadRequest", fmt.Sprintf("The body has unknown or duplicate %s fields", kind), suggestion)
	for _, fault := range unknown {
		apiErr.Details = append(apiErr.Details, apierror.Detail{Field: fieldOf(fault.Error()), Reason: fault.Error()})
	}
	return apiErr
}

// checkType refuses an object that says that it has another kind. It may say nothing.
func checkType(object client.Object, kind string, version k8sschema.GroupVersion) error {
	gvk := object.GetObjectKind().GroupVersionKind()
	if (gvk.Kind != "" && gvk.Kind != kind) || (gvk.Version != "" && gvk.GroupVersion() != version) {
		return apierror.Invalid("kind", "is %s of %s, but must be %s of %s", gvk.Kind, gvk.GroupVersion(), kind, version)
	}
	return nil
}

// fieldOf returns the field in a message of the Kubernetes JSON decoder, such as: unknown
// field "spec.slots".
func fieldOf(message string) string {
	if _, rest, found := strings.Cut(message, `"`); found {
		field, _, _ := strings.Cut(rest, `"`)
		return field
	}
	return "body"
}

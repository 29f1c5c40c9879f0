// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"io"
	"log/slog"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/kube/auditlog"
)

// Audit writes one line of JSON for each job or runtime that a user creates, changes or
// deletes. It contains the user and the object's name, not the object's content.
type Audit struct {
	logger *slog.Logger
	// isUnverified: no client certificate proves that the caller is the API server.
	isUnverified bool
}

// NewAudit returns an Audit that writes to a stream of its own.
func NewAudit(to io.Writer) *Audit { return &Audit{logger: auditlog.New(to)} }

// unverified marks every line: any client that can reach the port may have caused it.
func (a *Audit) unverified() *Audit {
	return &Audit{logger: a.logger, isUnverified: true}
}

func (a *Audit) write(request *admission.Request, response *admission.Response) {
	// A dry run changes nothing.
	if request.DryRun != nil && *request.DryRun {
		return
	}
	decision, code := "allowed", int32(200)
	if !response.Allowed {
		decision, code = "refused", response.Result.Code
	}
	line := []any{
		"user", request.UserInfo.Username,
		"groups", request.UserInfo.Groups,
		"verb", verb(request),
		"kind", request.Kind.Kind,
		"apiVersion", request.Kind.Group + "/" + request.Kind.Version,
		"namespace", request.Namespace,
		"name", objectName(request),
		"decision", decision,
		"code", code,
		"requestID", request.UID,
	}
	if a.isUnverified {
		line = append(line, "unverified", true)
	}
	a.logger.Info("audit", line...)
}

// Lifecycle writes a line for a job that starts or finishes, with its creator.
func (a *Audit) Lifecycle(event, kind string, job metav1.Object, result string) {
	a.logger.Info("audit",
		"user", job.GetAnnotations()[training.AnnotationCreatedBy],
		"verb", event,
		"kind", kind,
		"namespace", job.GetNamespace(),
		"name", job.GetName(),
		"uid", job.GetUID(),
		"result", result,
	)
}

// verb returns the operation as an RBAC verb: create, update, delete.
func verb(request *admission.Request) string { return strings.ToLower(string(request.Operation)) }

// objectName returns the name of the object. The request for an object with generateName
// has no name, but the object has.
func objectName(request *admission.Request) string {
	if request.Name != "" {
		return request.Name
	}
	var object struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	// The deletion of a collection has no name.
	for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
		if err := json.Unmarshal(raw, &object); err == nil && object.Metadata.Name != "" {
			return object.Metadata.Name
		}
	}
	return ""
}

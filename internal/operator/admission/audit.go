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

// Audit writes one line of JSON for each job or runtime that somebody creates,
// changes or deletes. It holds who and what, and nothing of the object's content.
type Audit struct {
	logger *slog.Logger
	// isUnverified: no client certificate proves that it was the API server who asked.
	isUnverified bool
}

// NewAudit writes to a stream that should have nothing else in it.
func NewAudit(to io.Writer) *Audit { return &Audit{logger: auditlog.New(to)} }

// unverified marks every line of a request: who can reach the port may have written it.
func (audit *Audit) unverified() *Audit {
	return &Audit{logger: audit.logger, isUnverified: true}
}

func (audit *Audit) write(request *admission.Request, response *admission.Response) {
	// Nothing happens in a dry run.
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
	if audit.isUnverified {
		line = append(line, "unverified", true)
	}
	audit.logger.Info("audit", line...)
}

// Lifecycle writes a line for a job that starts or ends, with who created it.
func (audit *Audit) Lifecycle(event, kind string, job metav1.Object, result string) {
	audit.logger.Info("audit",
		"user", job.GetAnnotations()[training.AnnotationCreatedBy],
		"verb", event,
		"kind", kind,
		"namespace", job.GetNamespace(),
		"name", job.GetName(),
		"uid", job.GetUID(),
		"result", result,
	)
}

// verb is the operation as rights are named: create, update, delete.
func verb(request *admission.Request) string { return strings.ToLower(string(request.Operation)) }

// objectName: the request for an object with generateName has no name, but the
// object has.
func objectName(request *admission.Request) string {
	if request.Name != "" {
		return request.Name
	}
	var object struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	// A collection is deleted without naming its members.
	for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
		if err := json.Unmarshal(raw, &object); err == nil && object.Metadata.Name != "" {
			return object.Metadata.Name
		}
	}
	return ""
}

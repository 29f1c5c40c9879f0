// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

func TestAudit(t *testing.T) {
	// line is what is the same in most of them.
	line := func(differences map[string]any) []map[string]any {
		line := map[string]any{
			"msg": "audit", "user": "ada", "groups": []any{"team-vision", "system:authenticated"},
			"verb": "create", "kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1", "namespace": namespace, "name": "resnet",
			"decision": "allowed", "code": 200.0, "requestID": "4711",
		}
		for key, value := range differences {
			line[key] = value
		}
		return []map[string]any{line}
	}
	type fields = map[string]any
	bad := func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(99)) }
	tests := map[string]struct {
		request func(t *testing.T) *admissionv1.AdmissionRequest
		down    bool
		want    []map[string]any
	}{
		"a job is created": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				return requestFor(t, admissionv1.Create, mpiJob(), nil)
			},
			want: line(nil),
		},
		"a job is refused": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				return requestFor(t, admissionv1.Create, mpiJob(bad), nil)
			},
			want: line(fields{"decision": "refused", "code": 422.0}),
		},
		"a job is unreadable": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Create, mpiJob(), nil)
				request.Object.Raw = rawText(nonsense)
				return request
			},
			want: line(fields{"decision": "refused", "code": 400.0}),
		},
		"the cluster cannot be asked": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				return requestFor(t, admissionv1.Create, mpiJob(), nil)
			},
			down: true,
			want: line(fields{"decision": "refused", "code": 500.0}),
		},
		"a job is changed": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				return requestFor(t, admissionv1.Update, mpiJob(), mpiJob())
			},
			want: line(fields{"verb": "update"}),
		},
		"a job is deleted": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				return requestFor(t, admissionv1.Delete, nil, mpiJob())
			},
			want: line(fields{"verb": "delete"}),
		},
		"a runtime of the cluster is created": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				return requestFor(t, admissionv1.Create, clusterRuntime(), nil)
			},
			want: line(fields{"kind": "ClusterTrainingRuntime", "apiVersion": "kubeflow.org/v2alpha1", "namespace": "", "name": "openmpi"}),
		},
		"a dry run leaves no line": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Create, mpiJob(), nil)
				request.DryRun = new(true)
				return request
			},
		},
		"a refusal in a dry run leaves none either": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Create, mpiJob(bad), nil)
				request.DryRun = new(true)
				return request
			},
		},
		"no dry run, in so many words": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Create, mpiJob(), nil)
				request.DryRun = new(false)
				return request
			},
			want: line(nil),
		},
		// Kubernetes has made the name by now, but only in the object.
		"a name that was made by generateName": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Create, mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.GenerateName, mpiJob.Name = "resnet-", "resnet-x7k2p" }), nil)
				request.Name = ""
				return request
			},
			want: line(fields{"name": "resnet-x7k2p"}),
		},
		"no name to be found": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Create, mpiJob(), nil)
				request.Name, request.Object.Raw = "", rawText(nonsense)
				return request
			},
			want: line(fields{"name": "", "decision": "refused", "code": 400.0}),
		},
		// So ends a namespace: the request is for all, and has no name. Only the
		// old object has.
		"one of many that are deleted together": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Delete, nil, mpiJob())
				request.Name = ""
				return request
			},
			want: line(fields{"verb": "delete"}),
		},
		"nobody's groups": {
			request: func(t *testing.T) *admissionv1.AdmissionRequest {
				request := requestFor(t, admissionv1.Create, mpiJob(), nil)
				request.UserInfo.Groups = nil
				return request
			},
			want: line(fields{"groups": nil}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			cache := holding(place())
			if tc.down {
				cache = failing(cache, &corev1.Namespace{})
			}
			var written bytes.Buffer
			request := tc.request(t)
			ask(t, cache, holding(), &written, paths[request.Kind.Kind], request)
			if diff := cmp.Diff(tc.want, linesOf(t, &written)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// linesOf are the lines of an audit, without the times.
func linesOf(t *testing.T, audit *bytes.Buffer) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for text := range strings.Lines(audit.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("the line %q is not JSON: %v", text, err)
		}
		said, _ := line["time"].(string)
		if _, err := time.Parse(time.RFC3339Nano, said); err != nil {
			t.Errorf("the line %q has no time: %v", text, err)
		}
		delete(line, "time")
		lines = append(lines, line)
	}
	return lines
}

// Jobs hold tokens and names of data. The audit goes where others read it.
func TestAuditOmitsObjectContent(t *testing.T) {
	const secret = "hunter2"
	meta := metav1.ObjectMeta{Annotations: map[string]string{"note": secret}, Labels: map[string]string{"note": secret}}
	withSecret := func(object client.Object) client.Object {
		object.SetAnnotations(meta.Annotations)
		object.SetLabels(meta.Labels)
		return object
	}
	variable := []corev1.EnvVar{{Name: "TOKEN", Value: secret}}
	for name, object := range map[string]client.Object{
		"MPIJob": withSecret(mpiJob(func(mpiJob *v2beta1.MPIJob) {
			workerOf(mpiJob).Containers[0].Env = variable
			mpiJob.Spec.SSHAuthMountPath = secret
		})),
		"TrainJob": withSecret(trainJob(func(trainJob *v2alpha1.TrainJob) {
			trainJob.Spec.Trainer.Env = variable
			trainJob.Spec.RuntimeRef.Name = secret
		})),
	} {
		t.Run(name, func(t *testing.T) {
			var written bytes.Buffer
			for _, request := range []*admissionv1.AdmissionRequest{
				requestFor(t, admissionv1.Create, object, nil), requestFor(t, admissionv1.Update, object, object), requestFor(t, admissionv1.Delete, nil, object),
			} {
				ask(t, holding(), holding(), &written, paths[name], request)
			}
			if lines := strings.Count(written.String(), "\n"); lines != 3 || strings.Contains(written.String(), secret) {
				t.Errorf("want three lines without %q, got:\n%s", secret, &written)
			}
		})
	}
}

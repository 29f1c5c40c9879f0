// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// reviews answers SubjectAccessReviews, and keeps them.
type reviews struct {
	// may are permissions such as "get secrets token".
	may []string
	// down is the permission that cannot be asked for.
	down  string
	asked []string
	specs []authorizationv1.SubjectAccessReviewSpec
}

func (r *reviews) live() client.WithWatch {
	return interceptor.NewClient(holding(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
			review := object.(*authorizationv1.SubjectAccessReview)
			attributes := review.Spec.ResourceAttributes
			permission := strings.TrimSpace(attributes.Verb + " " + attributes.Resource + " " + attributes.Name)
			r.asked, r.specs = append(r.asked, permission), append(r.specs, review.Spec)
			if permission == r.down {
				return errDown
			}
			review.Status.Allowed = slices.Contains(r.may, permission)
			return nil
		},
	})
}

func mountSecret(name string) func(*v2beta1.MPIJob) {
	return func(mpiJob *v2beta1.MPIJob) {
		pod := workerOf(mpiJob)
		pod.Volumes = append(pod.Volumes, corev1.Volume{
			Name: "v-" + name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}},
		})
	}
}

func useServiceAccount(name string) func(*v2beta1.MPIJob) {
	return func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).ServiceAccountName = name }
}

func TestReferencesNeedAPermission(t *testing.T) {
	const (
		volume  = "spec.mpiReplicaSpecs.Worker.template.spec.volumes[0].secret.secretName"
		account = "spec.mpiReplicaSpecs.Worker.template.spec.serviceAccountName"
		advice  = "remove the reference, or ask a namespace admin for the permission "
	)
	secret := volume + `: Forbidden: user "ada" may not use Secret "token": they may neither create pods in namespace "team-a" nor get this Secret; ` +
		advice + "(verb get, resource secrets, name token)"
	robot := account + `: Forbidden: user "ada" may not use ServiceAccount "robot": they may neither create pods in namespace "team-a" nor impersonate this ServiceAccount; ` +
		advice + "(verb impersonate, resource serviceaccounts, name robot)"
	many := func(mpiJob *v2beta1.MPIJob) {
		for i := range 65 {
			mountSecret(fmt.Sprintf("s%d", i))(mpiJob)
		}
	}
	tests := map[string]struct {
		job       client.Object
		reviews   reviews
		wantAsked []string
		want      []string
		wantCode  int32
	}{
		"no reference":                     {job: mpiJob()},
		"the ServiceAccount of every pod":  {job: mpiJob(useServiceAccount("default"))},
		"somebody who may create pods":     {job: mpiJob(mountSecret("token"), useServiceAccount("robot")), reviews: reviews{may: []string{"create pods"}}, wantAsked: []string{"create pods"}},
		"somebody who may get it":          {job: mpiJob(mountSecret("token")), reviews: reviews{may: []string{"get secrets token"}}, wantAsked: []string{"create pods", "get secrets token"}},
		"somebody who may get another":     {job: mpiJob(mountSecret("token")), reviews: reviews{may: []string{"get secrets other"}}, wantAsked: []string{"create pods", "get secrets token"}, want: []string{secret}, wantCode: 422},
		"somebody who may impersonate it":  {job: mpiJob(useServiceAccount("robot")), reviews: reviews{may: []string{"impersonate serviceaccounts robot"}}, wantAsked: []string{"create pods", "impersonate serviceaccounts robot"}},
		"somebody who may not, everything": {job: mpiJob(mountSecret("token"), useServiceAccount("robot")), wantAsked: []string{"create pods", "impersonate serviceaccounts robot", "get secrets token"}, want: []string{robot, secret}, wantCode: 422},
		"an answer that does not come":     {job: mpiJob(mountSecret("token")), reviews: reviews{down: "create pods"}, wantAsked: []string{"create pods"}, wantCode: 500},
		"a second answer that does not":    {job: mpiJob(mountSecret("token")), reviews: reviews{down: "get secrets token"}, wantAsked: []string{"create pods", "get secrets token"}, wantCode: 500},
		"more than is checked":             {job: mpiJob(many), wantAsked: []string{"create pods"}, want: []string{`spec: Forbidden: refers to 65 Secrets and ServiceAccounts; user "ada" may refer to at most 64, because they may not create pods in namespace "team-a"`}, wantCode: 422},
		"more, of somebody who may":        {job: mpiJob(many), reviews: reviews{may: []string{"create pods"}}, wantAsked: []string{"create pods"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := ask(t, holding(place()), tc.reviews.live(), io.Discard, "/validate/mpijob", requestFor(t, admissionv1.Create, tc.job, nil))
			if diff := cmp.Diff(tc.wantAsked, tc.reviews.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if got.Allowed != (tc.wantCode == 0) {
				t.Fatalf("allowed: %t: %v", got.Allowed, got.Result)
			}
			if got.Allowed {
				return
			}
			if got.Result.Code != tc.wantCode {
				t.Errorf("code %d, want %d", got.Result.Code, tc.wantCode)
			}
			for _, want := range tc.want {
				if !strings.Contains(got.Result.Message, want) {
					t.Errorf("no fault says %q:\n%s", want, got.Result.Message)
				}
			}
			if tc.wantCode == 500 && (!strings.Contains(got.Result.Message, "could not be checked") || !strings.Contains(got.Result.Message, "retry")) {
				t.Errorf("no advice: %s", got.Result.Message)
			}
		})
	}
}

// The runtime of a TrainJob may name what it likes: its author decided about that.
func TestReferencesOfRuntimesNeedNone(t *testing.T) {
	runtime := namespacedRuntime(namespace)
	pod := &runtime.Spec.Template.Spec.ReplicatedJobs[1].Template.Spec
	pod.ServiceAccountName, pod.ImagePullSecrets = "robot", []corev1.LocalObjectReference{{Name: "registry"}}
	if got := create(t, holding(place(), runtime), untouched(t), trainJob()); !got.Allowed {
		t.Errorf("refused: %v", got.Result)
	}
	theirs := reviews{}
	got := create(t, holding(place(), runtime), theirs.live(), trainJob(func(trainJob *v2alpha1.TrainJob) {
		trainJob.Spec.Trainer.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "token"}, Key: "token",
		}}}}
	}))
	if diff := cmp.Diff([]string{"create pods", "get secrets token"}, theirs.asked); got.Allowed || diff != "" {
		t.Errorf("allowed: %t, asked (-want +got):\n%s", got.Allowed, diff)
	}
}

// The API server decides by all that it knows of a user.
func TestReviewsNameTheWholeUser(t *testing.T) {
	request := requestFor(t, admissionv1.Create, mpiJob(mountSecret("token")), nil)
	request.UserInfo = authenticationv1.UserInfo{
		Username: "ada", UID: "42", Groups: []string{"team"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
	}
	request.DryRun = new(true)
	asked := reviews{may: []string{"create pods"}}
	ask(t, holding(place()), asked.live(), io.Discard, "/validate/mpijob", request)
	want := []authorizationv1.SubjectAccessReviewSpec{{
		User: "ada", UID: "42", Groups: []string{"team"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"},
	}}
	if diff := cmp.Diff(want, asked.specs); diff != "" {
		t.Errorf("reviews (-want +got):\n%s", diff)
	}
}

// Whoever may create pods could mount the key, but not by mistake.
func TestKeysOfOtherJobsAreRefused(t *testing.T) {
	mine, theirs := mpiJob(), mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Name = "victim" })
	other := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Name = "victim" })
	for name, tc := range map[string]struct {
		secret string
		jobs   []client.Object
		want   string
	}{
		"an MPIJob's":                      {secret: "victim-ssh-key", jobs: []client.Object{theirs}, want: `Secret "victim-ssh-key" is the SSH key of MPIJob "victim"`},
		"a TrainJob's":                     {secret: "victim-ssh", jobs: []client.Object{other}, want: `Secret "victim-ssh" is the SSH key of TrainJob "victim"`},
		"its own":                          {secret: mine.Name + "-ssh-key"},
		"of a job that does not exist":     {secret: "victim-ssh-key"},
		"of a job of another kind":         {secret: "victim-ssh-key", jobs: []client.Object{other}},
		"of a TrainJob with the same name": {secret: mine.Name + "-ssh", jobs: []client.Object{trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Name = mine.Name })}, want: "is the SSH key of TrainJob"},
	} {
		t.Run(name, func(t *testing.T) {
			admin := reviews{may: []string{"create pods"}}
			got := create(t, holding(append(tc.jobs, place())...), admin.live(), mpiJob(mountSecret(tc.secret)))
			if got.Allowed != (tc.want == "") || tc.want != "" && !strings.Contains(got.Result.Message, tc.want) {
				t.Errorf("allowed: %t, want %q: %v", got.Allowed, tc.want, got.Result)
			}
		})
	}
}

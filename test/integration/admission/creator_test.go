// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// person is a client of somebody who may do everything.
func (cluster *cluster) person(t *testing.T, name string) client.Client {
	t.Helper()
	identity, err := cluster.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.as(t, identity.Config())
}

func wantCreator(t *testing.T, object client.Object, want string) {
	t.Helper()
	got, found := object.GetAnnotations()[training.AnnotationCreatedBy]
	if got != want || found != (want != "") {
		t.Errorf("%s says that %q created it (%t), want %q", object.GetName(), got, found, want)
	}
}

// What the client says about it counts neither then nor later.
func TestJobsKnowTheirCreator(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	ada, grace := cluster.person(t, "ada@example.com"), cluster.person(t, "system:serviceaccount:pipelines:grace")
	for kind, job := range map[string]client.Object{
		"MPIJob": mpiJob(namespace, "resnet"), "TrainJob": trainJob(namespace, "bert"),
		"an MPIJob that claims to be somebody else's": mpiJob(namespace, "claimed", func(job *v2beta1.MPIJob) {
			job.Annotations = map[string]string{training.AnnotationCreatedBy: "root", "team": "vision"}
		}),
		"a TrainJob whose name the server makes": trainJob(namespace, "", func(job *v2alpha1.TrainJob) { job.GenerateName = "bert-" }),
	} {
		t.Run(kind, func(t *testing.T) {
			if err := ada.Create(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			wantCreator(t, job, "ada@example.com")
			for _, patch := range []string{
				`{"metadata":{"annotations":{"training.kubeflow.org/created-by":"root","note":"changed"}}}`,
				`{"metadata":{"annotations":{"training.kubeflow.org/created-by":null}}}`,
				`{"metadata":{"annotations":null}}`,
			} {
				if err := grace.Patch(t.Context(), job, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
					t.Errorf("%s: %v", patch, err)
				}
				wantCreator(t, job, "ada@example.com")
			}
		})
	}
	if err := grace.Create(t.Context(), mpiJob(namespace, "another")); err != nil {
		t.Fatal(err)
	}
	another := &v2beta1.MPIJob{}
	if err := ada.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "another"}, another); err != nil {
		t.Fatal(err)
	}
	wantCreator(t, another, "system:serviceaccount:pipelines:grace")
}

func TestLongNamesOfCreatorsAreCut(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	// An identity provider can call people what it likes; impersonation is how
	// the API server is told here.
	connection := *cluster.environment.Config
	connection.Impersonate.UserName = "https://login.example/" + strings.Repeat("x", 2000)
	connection.Impersonate.Groups = []string{"system:masters"}
	job := mpiJob(namespace, "resnet")
	if err := cluster.as(t, &connection).Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	wantCreator(t, job, connection.Impersonate.UserName[:1024])
}

// A job that mpi-operator stored has no creator: it stays so, and can be changed.
func TestStoredJobsGetNoCreator(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, map[string]string{"training.kubeflow.org/admission": "disabled"})
	job := mpiJob(namespace, "stored")
	cluster.create(t, job)
	wantCreator(t, job, "")
	cluster.admit(t, namespace)
	job.Annotations = map[string]string{training.AnnotationCreatedBy: "admin"}
	job.Spec.RunPolicy.Suspend = new(true)
	if err := cluster.client.Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	wantCreator(t, job, "")
}

// Nobody who applies a manifest again is told of a difference.
func TestApplyingAgainChangesNothing(t *testing.T) {
	cluster := sharedCluster.For(t)
	for name, flags := range map[string][]string{"by the client": nil, "by the server": {"--server-side"}} {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.namespace(t, nil)
			job := mpiJob(namespace, "resnet")
			job.TypeMeta = metav1.TypeMeta{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob"}
			text, err := yaml.Marshal(job)
			if err != nil {
				t.Fatal(err)
			}
			manifest := string(text)
			run := func(verb string) string {
				t.Helper()
				output, err := cluster.kubectl(t, manifest, append([]string{verb, "-n", namespace, "-f", "-"}, flags...)...)
				if err != nil {
					t.Fatalf("kubectl %s: %v\n%s", verb, err, output)
				}
				return output
			}
			run("apply")
			stored := &v2beta1.MPIJob{}
			key := client.ObjectKey{Namespace: namespace, Name: "resnet"}
			if err := cluster.client.Get(t.Context(), key, stored); err != nil {
				t.Fatal(err)
			}
			// diff ends with an error where there is one.
			run("diff")
			run("apply")
			again := &v2beta1.MPIJob{}
			if err := cluster.client.Get(t.Context(), key, again); err != nil {
				t.Fatal(err)
			}
			wantCreator(t, again, "admin")
			if again.ResourceVersion != stored.ResourceVersion {
				t.Errorf("version %s became %s, although nothing was changed", stored.ResourceVersion, again.ResourceVersion)
			}
		})
	}
}

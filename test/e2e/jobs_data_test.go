// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

const storageImage = "trireme.local/storage-server:e2e"

// loadStorageServer builds the server's image once.
var loadStorageServer = sync.OnceValue(func() error {
	output, err := shell("CGO_ENABLED=0 go build -o bin/storage-server ./test/e2e/storageserver && bin/cluster image load bin/storage-server --as " + storageImage)
	if err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return nil
})

// serveStorage starts a server with a dataset and a model, and has its
// credentials in a Secret.
func serveStorage(t *testing.T, api client.Client, namespace string) {
	t.Helper()
	needsLocalCluster(t, "an image of a storage server is loaded into the node")
	if err := loadStorageServer(); err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "storage"}
	for _, object := range []client.Object{
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "storage", Labels: labels},
			Spec: corev1.PodSpec{
				AutomountServiceAccountToken: new(false),
				SecurityContext:              &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
				Containers: []corev1.Container{{
					Name: "storage", Image: storageImage, Command: []string{"/storage-server"}, ImagePullPolicy: corev1.PullNever,
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				}},
			},
		},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "storage"},
			Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: labels},
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "storage"},
			StringData: map[string]string{
				"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
				"AWS_ENDPOINT_URL_S3": "http://storage:9000", "HF_TOKEN": "hf_test", "HF_ENDPOINT": "http://storage:8080",
			},
		},
	} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	eventually.Succeeds(t, "the storage server runs", func() error {
		pod := &corev1.Pod{}
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "storage"}, pod); err != nil || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%s %v", pod.Status.Phase, err)
		}
		return nil
	})
}

func from(uri string) *v2alpha1.Source {
	return &v2alpha1.Source{StorageURI: uri, SecretRef: &v2alpha1.SecretRef{Name: "storage"}}
}

// What the job starts from is there before any of its pods are.
func TestInitializers(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	serveStorage(t, api, namespace)
	trainJob := implementations[1].trainJob(2, `
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
found = open("/workspace/dataset/train.csv").read() + open("/workspace/dataset/test/one.csv").read() + open("/workspace/model/model.bin").read()
print(f"rank {world.rank} found {found!r}", flush=True)
`)
	trainJob.Name = "fetch"
	trainJob.Spec.Initializer = &v2alpha1.Initializer{
		Dataset: from("s3://data/digits"), Model: from("hf://team/net"), Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("10Mi"))},
	}
	job := submitTo(t, api, namespace, trainJob)
	job.succeeds()
	log := job.log()
	for rank := range 4 {
		if line := fmt.Sprintf(`rank %d found '1,2,3\n4,5,6\nthe weights of the net'`, rank); !strings.Contains(log, line) {
			t.Errorf("no %q in:\n%s", line, log)
		}
	}
	copied := implementations[1].trainJob(1, `print("copied", open("/workspace/dataset/train.csv").read().strip(), flush=True)`)
	copied.Name = "copy"
	copied.Spec.Initializer = &v2alpha1.Initializer{
		Dataset: &v2alpha1.Source{StorageURI: "pvc://fetch-workspace/dataset"}, Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("10Mi"))},
	}
	second := submitTo(t, api, namespace, copied)
	second.succeeds()
	if log := second.log(); !strings.Contains(log, "copied 1,2,3") {
		t.Errorf("the job that copies says:\n%s", log)
	}
}

// A source that is not there fails the job before it asks for nodes.
func TestAnInitializerFails(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	serveStorage(t, api, namespace)
	trainJob := implementations[1].trainJob(2, allreduce)
	trainJob.Spec.Initializer = &v2alpha1.Initializer{
		Dataset: from("s3://nobodys/digits"), Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("10Mi"))},
	}
	job := submitTo(t, api, namespace, trainJob)
	ended := job.fails(training.FailureTraining, "nitializer", "nobodys")
	t.Log(ended.FailureMessage)
	if pods := job.pods(training.RoleWorker); len(pods) > 0 {
		t.Errorf("there are %d workers", len(pods))
	}
}

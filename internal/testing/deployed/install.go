// SPDX-License-Identifier: Apache-2.0

package deployed

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// identity is the kubeconfig of a service account with the roles of config/rbac
// and nothing else.
func identity(t testing.TB, environment *envtest.Environment) []byte {
	t.Helper()
	admin, err := client.New(environment.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"role.yaml", "binding.yaml"} {
		for _, document := range Documents(t, filepath.Join(Repository(), "config/rbac", file)) {
			if err := admin.Create(context.Background(), document); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatalf("create %s %s: %v", document.GetKind(), document.GetName(), err)
			}
		}
	}
	user, err := environment.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + Namespace + ":trireme-operator",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace, "system:authenticated"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// InstallWebhooks installs the configurations that are deployed, with the one
// change that there is no Service here to send requests to.
func InstallWebhooks(t testing.TB, admin client.Client, port int32) {
	t.Helper()
	var judging admissionregistrationv1.ValidatingWebhookConfiguration
	var noting admissionregistrationv1.MutatingWebhookConfiguration
	for file, configuration := range map[string]client.Object{"webhooks.yaml": &judging, "creator.yaml": &noting} {
		if err := yaml.UnmarshalStrict(Read(t, filepath.Join(Repository(), "config/webhook", file)), configuration); err != nil {
			t.Fatal(err)
		}
	}
	for i := range judging.Webhooks {
		reachHere(&judging.Webhooks[i].ClientConfig, port)
	}
	for i := range noting.Webhooks {
		reachHere(&noting.Webhooks[i].ClientConfig, port)
	}
	for _, configuration := range []client.Object{&judging, &noting} {
		if err := client.IgnoreNotFound(admin.Delete(context.Background(), configuration.DeepCopyObject().(client.Object))); err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(context.Background(), configuration); err != nil {
			t.Fatal(err)
		}
	}
}

// InstallPolicy installs the policy about children of jobs, and the service account
// that it makes an exception for.
func InstallPolicy(t testing.TB, admin client.Client) {
	t.Helper()
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "trireme-operator"}},
	}
	for _, document := range Documents(t, filepath.Join(Repository(), "config/webhook/children.yaml")) {
		objects = append(objects, document)
	}
	for _, object := range objects {
		if err := client.IgnoreAlreadyExists(admin.Create(context.Background(), object)); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

func reachHere(webhook *admissionregistrationv1.WebhookClientConfig, port int32) {
	webhook.URL = new(fmt.Sprintf("https://localhost:%d", port))
	webhook.Service = nil
}

// Documents are the YAML documents of a file.
func Documents(t testing.TB, path string) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, text := range strings.Split("\n"+string(Read(t, path)), "\n---") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(object.Object) > 0 {
			found = append(found, object)
		}
	}
	return found
}

// Read is what is in a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Repository is found from where this file was compiled, because tests run in
// the folder of their package.
func Repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// JobSetCRDs is the folder of the CRD of the JobSet that the product is built
// against.
func JobSetCRDs(t testing.TB) string {
	t.Helper()
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/jobset")
	command.Dir = Repository()
	output, err := command.Output()
	if err != nil {
		t.Fatalf("find JobSet's module: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(output)), "config/components/crd/bases")
}

// FreePort is a port that nobody listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

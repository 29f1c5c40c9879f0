// SPDX-License-Identifier: Apache-2.0

package deployed

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// identity is the kubeconfig of a service account with the operator's roles and nothing
// else.
func identity(t testing.TB, environment *envtest.Environment) []byte {
	t.Helper()
	admin, err := client.New(environment.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range Manifests(t, "*Role*/trireme-operator") {
		if err := admin.Create(context.Background(), document); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("create %s %s: %v", document.GetKind(), document.GetName(), err)
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
	InstallWebhooksOf(t, admin, port, Manifests(t, "*WebhookConfiguration/trireme"))
}

// InstallWebhooksOf installs the configurations of another installation.
func InstallWebhooksOf(t testing.TB, admin client.Client, port int32, configurations []*unstructured.Unstructured) {
	t.Helper()
	for _, configuration := range configurations {
		webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
		if err != nil {
			t.Fatal(err)
		}
		for _, webhook := range webhooks {
			webhook.(map[string]any)["clientConfig"] = map[string]any{"url": fmt.Sprintf("https://localhost:%d", port)}
		}
		if err := unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks"); err != nil {
			t.Fatal(err)
		}
		Replace(t, admin, configuration)
	}
}

// Replace creates an object, in place of one of its name.
func Replace(t testing.TB, admin client.Client, object client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(admin.Delete(context.Background(), object.DeepCopyObject().(client.Object))); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(context.Background(), object); err != nil {
		t.Fatalf("create %T %s: %v", object, object.GetName(), err)
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
	for _, document := range Manifests(t, "ValidatingAdmissionPolicy*/trireme-children") {
		objects = append(objects, document)
	}
	for _, object := range objects {
		if err := client.IgnoreAlreadyExists(admin.Create(context.Background(), object)); err != nil {
			t.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// Render are the objects of an installation with these values, such as platform=openshift,
// that one of the selectors selects. It needs bin/helm.
func Render(t testing.TB, values []string, selectors ...string) []*unstructured.Unstructured {
	t.Helper()
	command := exec.Command(filepath.Join(Repository(), "bin/helm"), "template", "trireme", filepath.Join(Repository(), "charts/trireme"), "--namespace", Namespace)
	for _, value := range values {
		command.Args = append(command.Args, "--set", value)
	}
	output, err := command.Output()
	if err != nil {
		t.Fatalf("render the chart: %v; make bin/helm builds helm", err)
	}
	return selected(t, parse(t, "the chart", output), selectors)
}

// Documents are the YAML documents of a file.
func Documents(t testing.TB, file string) []*unstructured.Unstructured {
	t.Helper()
	return parse(t, file, Read(t, file))
}

func parse(t testing.TB, file string, content []byte) []*unstructured.Unstructured {
	t.Helper()
	var found []*unstructured.Unstructured
	for _, text := range strings.Split("\n"+string(content), "\n---") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(object.Object) > 0 {
			found = append(found, object)
		}
	}
	return found
}

// Manifests are objects of the chart's default installation, selected by kind and name
// as in "*Role*/trireme-operator".
func Manifests(t testing.TB, selectors ...string) []*unstructured.Unstructured {
	t.Helper()
	return ManifestsWith(t, "kubernetes", selectors...)
}

// ManifestsWith are objects of an installation with the values of one of the files in
// charts/trireme/ci.
func ManifestsWith(t testing.TB, values string, selectors ...string) []*unstructured.Unstructured {
	t.Helper()
	return selected(t, Documents(t, filepath.Join(Repository(), "config/manifests", values+".yaml")), selectors)
}

func selected(t testing.TB, objects []*unstructured.Unstructured, selectors []string) (found []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		isSelected := func(selector string) bool {
			matches, err := path.Match(selector, object.GetKind()+"/"+object.GetName())
			return matches && err == nil
		}
		if slices.ContainsFunc(selectors, isSelected) {
			found = append(found, object)
		}
	}
	if len(found) == 0 {
		t.Fatalf("the chart has no object %v", selectors)
	}
	return found
}

// Manifest reads one object of the chart's default installation.
func Manifest(t testing.TB, selector string, object client.Object) {
	t.Helper()
	content, err := Manifests(t, selector)[0].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, object); err != nil {
		t.Fatalf("%s: %v", selector, err)
	}
}

// UserRoles are the roles for users of jobs and runtimes.
func UserRoles(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	return Manifests(t, "ClusterRole*/mpijob-*", "ClusterRole*/trainjob-*", "ClusterRole*/*trainingruntime-*")
}

// CRDs is the folder with the definitions of the job APIs.
func CRDs() string { return filepath.Join(Repository(), "charts/trireme/crds") }

// Read is what is in a file.
func Read(t testing.TB, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
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

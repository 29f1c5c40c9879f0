// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// A cluster that KUBECONFIG names, from nothing to nothing.
func TestInstallAndUninstall(t *testing.T) {
	cluster := startCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); cluster.bePartsThatAreNotHere(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	install := func() string {
		t.Helper()
		output, err := cluster.run(t, images, "config/install")
		if err != nil {
			t.Fatalf("install: %v\n%s", err, output)
		}
		return output
	}
	output := install()
	for _, want := range []string{"note: TrainJobs need JobSet", "mpi-horovod-gpu", "mpi-intel-cpu", "mpi-openmpi-cpu", "mpi-openmpi-distributed"} {
		if !strings.Contains(output, want) {
			t.Errorf("install does not say %q:\n%s", want, output)
		}
	}
	settings := cluster.wantOperator(t)
	if settings.Agent.Image != "registry.example/trireme/mpi-agent:1.0" || settings.Initializer.Image != "registry.example/trireme/initializer:1.0" {
		t.Errorf("jobs start with %q and %q", settings.Agent.Image, settings.Initializer.Image)
	}

	var server appsv1.Deployment
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "trireme-system", Name: "trireme-server"}, &server); err != nil {
		t.Fatal(err)
	}
	if image := server.Spec.Template.Spec.Containers[0].Image; image != "registry.example/trireme/server:1.0" {
		t.Errorf("the server is %s", image)
	}

	// The right to act as anybody is there as long as it is asked for.
	mayImpersonate := func() bool {
		t.Helper()
		output, err := cluster.run(t, nil, "kubectl", "get", "clusterroles,clusterrolebindings", "-o", "name")
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return strings.Contains(output, "impersonation")
	}
	if output, err := cluster.run(t, append(slices.Clone(images), "COMPONENTS=impersonation"), "config/install"); err != nil || !mayImpersonate() {
		t.Fatalf("the server may not impersonate (%v)\n%s", err, output)
	}

	// What the platform team has changed stays theirs when it is installed again.
	cluster.kubectl(t, "patch", "clustertrainingruntime", "mpi-openmpi-cpu", "--type=merge", "-p", `{"spec":{"mlPolicy":{"numNodes":7}}}`)
	if output := install(); !strings.Contains(output, "kept: mpi-openmpi-cpu was changed on this cluster") {
		t.Errorf("install does not say what it kept:\n%s", output)
	}
	if mayImpersonate() {
		t.Error("the server may still impersonate")
	}
	if output, err := cluster.run(t, nil, "kubectl", "get", "ctr", "mpi-openmpi-cpu", "-o", "jsonpath={.spec.mlPolicy.numNodes}"); err != nil || output != "7" {
		t.Errorf("the runtime that was changed has %s nodes (%v)", output, err)
	}

	cluster.kubectl(t, "apply", "-f", "config/samples/mpijob.yaml")
	refused, err := cluster.run(t, nil, "config/uninstall")
	if err == nil || !strings.Contains(refused, "this cluster has jobs (1)") || !strings.Contains(refused, "make uninstall JOBS=delete") {
		t.Errorf("jobs of somebody were removed without a question (%v):\n%s", err, refused)
	}
	snapshot := plan.Snapshot("default", "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", []byte("{}"))
	theirs := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"}, Revision: 1, Data: snapshot.Data}
	for _, revision := range []*appsv1.ControllerRevision{snapshot, theirs} {
		if err := cluster.client.Create(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
	}
	if output, err := cluster.run(t, []string{"JOBS=delete"}, "config/uninstall"); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, output)
	}
	if output, err := cluster.run(t, nil, "kubectl", "get", "controllerrevisions", "-A", "-o", "name"); err != nil || !strings.HasSuffix(strings.TrimSpace(output), "/theirs") || strings.Count(output, "/") != 1 {
		t.Errorf("ControllerRevisions (%v):\n%s", err, output)
	}
	cluster.wantNothing(t)
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		if output, err := cluster.run(t, nil, "kubectl", "get", kind, "-o", "name"); err != nil || strings.Contains(output, "trireme") || strings.Contains(output, "trainjob") {
			t.Errorf("left over (%v):\n%s", err, output)
		}
	}
}

// wantOperator is the configuration of the operator as it is deployed, which
// must be of the version that was asked for.
func (cluster *cluster) wantOperator(t *testing.T) *config.Config {
	t.Helper()
	var deployment appsv1.Deployment
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "trireme-system", Name: "trireme-operator"}, &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	if image := pod.Containers[0].Image; image != "registry.example/trireme/operator:1.0" {
		t.Errorf("the operator is %s", image)
	}
	return cluster.configuration(t, pod.Volumes)
}

// configuration is what the operator finds in its volumes.
func (cluster *cluster) configuration(t *testing.T, volumes []corev1.Volume) *config.Config {
	t.Helper()
	for _, volume := range volumes {
		if volume.Name != "config" {
			continue
		}
		var settings corev1.ConfigMap
		if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "trireme-system", Name: volume.ConfigMap.Name}, &settings); err != nil {
			t.Fatal(err)
		}
		loaded, err := config.Parse(volume.ConfigMap.Name, []byte(settings.Data["config.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		return loaded
	}
	t.Fatal("the operator has no configuration")
	return nil
}

// issuesServerCertificate says whether the operator as it is deployed issues it.
func (cluster *cluster) issuesServerCertificate(t *testing.T) bool {
	t.Helper()
	var deployment appsv1.Deployment
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "trireme-system", Name: "trireme-operator"}, &deployment); err != nil {
		t.Fatal(err)
	}
	return cluster.configuration(t, deployment.Spec.Template.Spec.Volumes).IssuesServerCertificate()
}

// bePartsThatAreNotHere does what takes more than an API server: Deployments roll
// out, namespaces end, jobs deleted in the foreground go when nothing is left of
// them, and nobody asks an operator that does not run.
func (cluster *cluster) bePartsThatAreNotHere(ctx context.Context) {
	for ctx.Err() == nil {
		for _, name := range []string{"trireme-operator", "trireme-server"} {
			var deployment appsv1.Deployment
			if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: "trireme-system", Name: name}, &deployment); err == nil {
				replicas := *deployment.Spec.Replicas
				deployment.Status = appsv1.DeploymentStatus{
					ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas,
				}
				_ = cluster.client.Status().Update(ctx, &deployment)
			}
		}
		for _, configuration := range []client.Object{&admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfiguration{}} {
			_ = cluster.client.DeleteAllOf(ctx, configuration)
		}
		var namespace corev1.Namespace
		if err := cluster.client.Get(ctx, client.ObjectKey{Name: "trireme-system"}, &namespace); err == nil && namespace.DeletionTimestamp != nil {
			namespace.Spec.Finalizers = nil
			_ = cluster.client.SubResource("finalize").Update(ctx, &namespace)
		}
		var jobs v2beta1.MPIJobList
		_ = cluster.client.List(ctx, &jobs)
		for _, job := range jobs.Items {
			if controllerutil.RemoveFinalizer(&job, metav1.FinalizerDeleteDependents) {
				_ = cluster.client.Update(ctx, &job)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Every overlay is what an API server accepts, but for kinds of others.
func TestOverlays(t *testing.T) {
	cluster := startCluster(t)
	for _, others := range []string{"Issuer.cert-manager.io", "Certificate.cert-manager.io", "ServiceMonitor.monitoring.coreos.com"} {
		cluster.createKindOfOthers(t, others)
	}
	for name, wantUser := range map[string]string{"kubernetes": "65532", "cert-manager": "65532", "local": "65532", "openshift": ""} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			relative, err := filepath.Rel(folder, absolute(t, repository))
			if err != nil {
				t.Fatal(err)
			}
			content := "resources: [" + relative + "/config/overlays/" + name + "]\ncomponents: [" + relative + "/config/components/prometheus, " + relative + "/config/components/impersonation]\n"
			if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			cluster.kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", folder)
			get := func(what, path string) string {
				t.Helper()
				output, err := cluster.run(t, nil, "kubectl", "get", what, "-n", "trireme-system", "-o", "jsonpath="+path)
				if err != nil {
					t.Fatalf("%s: %v\n%s", what, err, output)
				}
				return output
			}
			for _, program := range []string{"operator", "server"} {
				if user := get("deployment/trireme-"+program, "{.spec.template.spec.securityContext.runAsUser}"); user != wantUser {
					t.Errorf("the %s runs as user %q, want %q", program, user, wantUser)
				}
			}
			serving := map[bool]string{true: "trireme-server-tls"}[name == "openshift"]
			if secret := get("service/trireme-server", `{.metadata.annotations.service\.beta\.openshift\.io/serving-cert-secret-name}`); secret != serving {
				t.Errorf("OpenShift writes the server's certificate to %q, want %q", secret, serving)
			}
			if optional := get("deployment/trireme-server", "{.spec.template.spec.volumes[?(@.name=='certificate')].secret.optional}"); optional != "" {
				t.Errorf("the server starts without its certificate: optional is %s", optional)
			}
			// Where another issues the server's certificate, the operator does not.
			if issues := cluster.issuesServerCertificate(t); issues != (name == "kubernetes" || name == "local") {
				t.Errorf("the operator issues the server's certificate: %v", issues)
			}
			if name == "cert-manager" {
				if secret := get("certificate/trireme-server", "{.spec.secretName}"); secret != "trireme-server-tls" {
					t.Errorf("cert-manager writes the server's certificate to %q", secret)
				}
			}
			injected := map[bool]string{true: "trireme-system/trireme-webhook"}[name == "cert-manager"]
			for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
				if from := get(kind+"/trireme", `{.metadata.annotations.cert-manager\.io/inject-ca-from}`); from != injected {
					t.Errorf("the authority of the %s is from %q, want %q", kind, from, injected)
				}
			}
			// kustomize adds a hash to the name of a ConfigMap, wherever it finds it.
			if names := get("role/trireme-operator", "{.rules[*].resourceNames[*]}"); names != "trireme-ca trireme-server-tls trireme-webhook trireme-leader" {
				t.Errorf("the operator may write %q", names)
			}
			cluster.kubectl(t, "delete", "validatingwebhookconfiguration/trireme", "mutatingwebhookconfiguration/trireme")
		})
	}
}

// Whoever is allowed to create children is known by the operator's service account,
// under the name that an overlay gives it.
func TestPolicyFollowsTheOperatorsName(t *testing.T) {
	cluster := startCluster(t)
	folder := t.TempDir()
	relative, err := filepath.Rel(folder, absolute(t, repository))
	if err != nil {
		t.Fatal(err)
	}
	content := "namePrefix: team-\nnamespace: elsewhere\nresources: [" + relative + "/config/overlays/kubernetes]\n"
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}})
	cluster.kubectl(t, "apply", "--server-side", "-k", folder)
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: "team-trireme-children"}, &binding); err != nil {
		t.Fatal(err)
	}
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Name: binding.Spec.PolicyName}, &admissionregistrationv1.ValidatingAdmissionPolicy{}); err != nil {
		t.Errorf("the binding names another policy: %v", err)
	}
	account := client.ObjectKey{Namespace: binding.Spec.ParamRef.Namespace, Name: binding.Spec.ParamRef.Name}
	var operator appsv1.Deployment
	if err := cluster.client.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "team-trireme-operator"}, &operator); err != nil {
		t.Fatal(err)
	}
	if want := (client.ObjectKey{Namespace: operator.Namespace, Name: operator.Spec.Template.Spec.ServiceAccountName}); account != want {
		t.Errorf("the policy allows %s, want %s", account, want)
	}
	if err := cluster.client.Get(t.Context(), account, &corev1.ServiceAccount{}); err != nil {
		t.Error(err)
	}
}

// createKindOfOthers makes a kind of any content; what it is called is
// Kind.group.
func (cluster *cluster) createKindOfOthers(t *testing.T, name string) {
	t.Helper()
	kind, group, _ := strings.Cut(name, ".")
	plural := strings.ToLower(kind) + "s"
	cluster.create(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}},
			}},
		},
	})
	objects := &unstructured.UnstructuredList{}
	objects.SetAPIVersion(group + "/v1")
	objects.SetKind(kind + "List")
	deadline := time.Now().Add(time.Minute)
	for cluster.client.List(t.Context(), objects) != nil {
		if time.Now().After(deadline) {
			t.Fatalf("%s is not served", name)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// SPDX-License-Identifier: Apache-2.0

package install

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

// From nothing to nothing, with other values in between.
func TestInstallAndUninstall(t *testing.T) {
	cluster := startCluster(t)
	images := []string{"--set", "images.registry=registry.example/trireme", "--set-string", "images.tag=1.0"}
	upgrade := func(more ...string) {
		t.Helper()
		if output, err := cluster.helm(t, "upgrade", append(append([]string{"--install"}, images...), more...)...); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	upgrade()
	settings := cluster.wantOperator(t)
	if settings.Agent.Image != "registry.example/trireme/mpi-agent:1.0" || settings.Initializer.Image != "registry.example/trireme/initializer:1.0" {
		t.Errorf("jobs start with %q and %q", settings.Agent.Image, settings.Initializer.Image)
	}

	// The permission to act as anyone exists only while it is turned on.
	mayImpersonate := func() bool {
		t.Helper()
		output, err := cluster.run(t, nil, "kubectl", "get", "clusterroles,clusterrolebindings", "-o", "name")
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return strings.Contains(output, "impersonation")
	}
	if upgrade("--set", "server.impersonation.enabled=true", "--set", "server.extraArgs={--proxy-ca-file=/run/proxy/ca.crt}"); !mayImpersonate() {
		t.Error("the server may not impersonate")
	}

	// What the operator writes into objects of the chart survives an upgrade.
	cluster.kubectl(t, "patch", "secret", "trireme-webhook", "-n", "trireme-system", "--type=merge", "-p", `{"data":{"tls.crt":"b3Vycw=="}}`)
	cluster.kubectl(t, "patch", "validatingwebhookconfiguration", "trireme", "--type=json", "-p", `[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"b3Vycw=="}]`)
	if upgrade(); mayImpersonate() {
		t.Error("the server may still impersonate")
	}
	for _, path := range [][]string{
		{"secret/trireme-webhook", `{.data.tls\.crt}`}, {"validatingwebhookconfiguration/trireme", "{.webhooks[0].clientConfig.caBundle}"},
	} {
		if output, err := cluster.run(t, nil, "kubectl", "get", path[0], "-n", "trireme-system", "-o", "jsonpath="+path[1]); err != nil || output != "b3Vycw==" {
			t.Errorf("the upgrade has changed %s to %q (%v)", path[0], output, err)
		}
	}

	if output, err := cluster.run(t, nil, "bin/helm", "uninstall", "trireme", "--namespace", "trireme-system", "--no-hooks"); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, output)
	}
	kinds := "clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings," +
		"serviceaccounts,secrets,configmaps,deployments,services,leases,roles,rolebindings,poddisruptionbudgets"
	output, err := cluster.run(t, nil, "kubectl", "get", kinds, "-n", "trireme-system", "-o", "name")
	if err != nil || strings.Contains(output, "trireme") || strings.Contains(output, "trainjob") || strings.Contains(output, "mpijob") {
		t.Errorf("left over (%v):\n%s", err, output)
	}
	if output, err := cluster.run(t, nil, "kubectl", "get", "crds", "-o", "name"); err != nil || strings.Count(output, "kubeflow.org") != 4 {
		t.Errorf("the job APIs are not kept (%v):\n%s", err, output)
	}
}

// What the chart's Jobs do after an install or upgrade and before an uninstall.
func TestSetup(t *testing.T) {
	cluster := startCluster(t)
	cluster.addKinds(t, "charts/trireme/crds")
	files, err := filepath.Glob(filepath.Join(repository, "charts/trireme/files/runtimes/*.yaml"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%d runtimes, %v", len(files), err)
	}
	var runtimes [][]byte
	for _, file := range files {
		runtimes = append(runtimes, deployed.Read(t, file))
	}
	var output strings.Builder
	setup := cluster.setup(t, &output)
	if err := setup.ApplyRuntimes(t.Context(), runtimes); err != nil {
		t.Fatal(err)
	}

	// What the platform team has changed stays theirs.
	cluster.kubectl(t, "patch", "clustertrainingruntime", "mpi-openmpi-cpu", "--type=merge", "-p", `{"spec":{"mlPolicy":{"numNodes":7}}}`)
	if err := setup.ApplyRuntimes(t.Context(), runtimes); err != nil || !strings.Contains(output.String(), "mpi-openmpi-cpu was changed on this cluster and is kept") {
		t.Errorf("%v\n%s", err, output.String())
	}

	cluster.kubectl(t, "apply", "-f", "config/samples/mpijob.yaml")
	snapshot := plan.Snapshot("default", "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", []byte("{}"))
	theirs := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "theirs"}, Revision: 1, Data: snapshot.Data}
	for _, revision := range []*appsv1.ControllerRevision{snapshot, theirs} {
		if err := cluster.client.Create(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
	}
	names := func(kind string) string {
		t.Helper()
		output, err := cluster.run(t, nil, "kubectl", "get", kind, "-A", "-o", "jsonpath={.items[*].metadata.name}")
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return output
	}
	err = setup.Uninstall(t.Context(), runtimes)
	if err == nil || !strings.Contains(err.Error(), "1 jobs are not finished: MPIJob default/pytorch-distributed.") || len(strings.Fields(names("clustertrainingruntimes"))) != 4 {
		t.Errorf("uninstalled in spite of a job: %v, %s", err, names("clustertrainingruntimes"))
	}
	cluster.kubectl(t, "patch", "mpijob", "pytorch-distributed", "--subresource=status", "--type=merge", "-p", `{"status":{"completionTime":"2026-01-01T00:00:00Z"}}`)
	if err := setup.Uninstall(t.Context(), runtimes); err != nil {
		t.Fatal(err)
	}
	if err := setup.DeleteSnapshots(t.Context()); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{"clustertrainingruntimes": "mpi-openmpi-cpu", "controllerrevisions": "theirs", "mpijobs": "pytorch-distributed"} {
		if got := names(kind); got != want {
			t.Errorf("after the uninstall there are %s %q, want %q", kind, got, want)
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

// Every set of values gives objects that an API server accepts.
func TestValues(t *testing.T) {
	cluster := startCluster(t)
	for _, others := range []string{
		"Issuer.cert-manager.io", "Certificate.cert-manager.io", "ServiceMonitor.monitoring.coreos.com", "PrometheusRule.monitoring.coreos.com",
		"HTTPRoute.gateway.networking.k8s.io", "BackendTLSPolicy.gateway.networking.k8s.io", "Route.route.openshift.io",
		"SecurityContextConstraints.security.openshift.io", "ConsoleLink.console.openshift.io",
	} {
		cluster.createKindOfOthers(t, others)
	}
	// In this order: each is an upgrade from the one before.
	for _, name := range []string{"kubernetes", "cert-manager", "local", "complete", "openshift"} {
		t.Run(name, func(t *testing.T) {
			wantUser := map[bool]string{false: "65532"}[name == "openshift"]
			if output, err := cluster.helm(t, "upgrade", "--install", "--values", "charts/trireme/ci/"+name+"-values.yaml"); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}
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
			// Where another issues the server's certificate, the operator does not.
			if issues := cluster.issuesServerCertificate(t); issues != (name != "openshift" && name != "cert-manager") {
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
		})
	}
}

// In another namespace, everything refers to that namespace.
func TestNamespace(t *testing.T) {
	output, err := exec.Command(repository+"/bin/helm", "template", "trireme", repository+"/charts/trireme", "--namespace", "elsewhere", "--values", repository+"/charts/trireme/ci/complete-values.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if strings.Contains(string(output), "trireme-system") {
		t.Error("an object refers to trireme-system")
	}
}

// A wrong value is refused, and the error names it.
func TestWrongValues(t *testing.T) {
	for value, want := range map[string]string{
		"operator.replicas=0":                                 "/operator/replicas",
		"operator.replica=3":                                  "'replica' not allowed",
		"images.operator.digest=latest":                       "/images/operator/digest",
		"images.registry=https://registry/":                   "/images/registry",
		"images.pullPolicy=Sometimes":                         "/images/pullPolicy",
		"images.pullSecrets={Registry_1}":                     "/images/pullSecrets/0",
		"platform=gke":                                        "/platform",
		"certificates.issuer=vault":                           "/certificates/issuer",
		"networkPolicies.apiServerPorts={0}":                  "/networkPolicies/apiServerPorts/0",
		"monitoring.serviceMonitor.interval=soon":             "/monitoring/serviceMonitor/interval",
		"operator.config.kind=Something":                      "/operator/config",
		"server.ingress.enabled=true":                         "server.ingress.host is required",
		"server.gateway.enabled=true":                         "server.gateway.parentRefs is required",
		"server.enabled=perhaps":                              "/server/enabled",
		"mpiJobs.manage=some":                                 "/mpiJobs/manage",
		"mpiJobs.unfinished=delete":                           "/mpiJobs/unfinished",
		"mpiJobs.serviceAccount=mpi-operator":                 "/mpiJobs/serviceAccount",
		"operator.config.mpiJobs.manage=New":                  "use the value mpiJobs.manage",
		"operator.config.webhook.port=1":                      "operator.config.webhook.port: the chart sets it",
		"operator.config.leaderElection.enabled=false":        "operator.config.leaderElection.enabled: the chart sets it",
		"server.impersonation.enabled=true":                   "add --proxy-ca-file=FILE to server.extraArgs",
		"history.enabled=true,server.enabled=false":           "users read the history from the server",
		"history.enabled=true,history.s3.bucket=s3://records": "history.s3.secret is required",
		"history.maxSize=plenty":                              "/history/maxSize",
		"server.gateway.enabled=true,server.gateway.parentRefs[0].name=public,certificates.issuer=cert-manager": "server.gateway.enabled: the gateway needs the CA",
		"namespaces[0].name=default": "default is the namespace of Trireme itself",
	} {
		output, err := exec.Command(repository+"/bin/helm", "template", "trireme", repository+"/charts/trireme", "--set", value).CombinedOutput()
		if err == nil || !strings.Contains(string(output), want) {
			t.Errorf("%s: want it refused with %q, got (%v):\n%.600s", value, want, err, output)
		}
	}
}

// createKindOfOthers makes a kind of any content; what it is called is
// Kind.group.
func (cluster *cluster) createKindOfOthers(t *testing.T, name string) {
	t.Helper()
	kind, group, _ := strings.Cut(name, ".")
	plural := strings.ToLower(kind) + "s"
	cluster.create(t, &apiextensionsv1.CustomResourceDefinition{
		// The annotation is required for groups of Kubernetes' own projects.
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for tests"}},
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

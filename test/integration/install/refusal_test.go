// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/charts"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

func TestRefusals(t *testing.T) {
	cluster := startCluster(t)
	t.Run("another operator", func(t *testing.T) { otherOperators(t, cluster) })
	t.Run("beside mpi-operator", func(t *testing.T) { besideMPIOperator(t, cluster) })
	t.Run("jobs of mpi-operator", func(t *testing.T) { unfinishedJobsOfMPIOperator(t, cluster) })
	t.Run("stored versions", func(t *testing.T) { storedVersions(t, cluster) })
	t.Run("the way out of an old version", func(t *testing.T) { wayOutOfAnOldVersion(t, cluster) })
	t.Run("the kind of mpi-operator", func(t *testing.T) { kindOfMPIOperator(t, cluster) })
	t.Run("somebody who may not look", func(t *testing.T) { whoeverMayNotLook(t, cluster) })
	t.Run("settings", func(t *testing.T) { settingsThatLack(t, cluster) })
}

// Where another operator works on MPIJobs nothing is installed; where it does
// not, it can be.
func otherOperators(t *testing.T, cluster *cluster) {
	const stopIt = "kubectl scale deployment/theirs --namespace default --replicas=0"
	const withoutIt = "--enable-scheme for each kind that you need and without mpijob"
	for name, tc := range map[string]struct {
		container corev1.Container
		replicas  int32
		// want is the suggested remedy; empty if there is no obstacle.
		want string
	}{
		"mpi-operator":                       {container: corev1.Container{Image: "mpioperator/mpi-operator:0.8.0"}, replicas: 1, want: stopIt},
		"mpi-operator without a tag":         {container: corev1.Container{Image: "mpi-operator"}, replicas: 1, want: stopIt},
		"mpi-operator by its digest":         {container: corev1.Container{Image: "registry.example:5000/mirror/mpi-operator@sha256:" + strings.Repeat("a", 64)}, replicas: 2, want: stopIt},
		"mpi-operator in an image of others": {container: corev1.Container{Image: "registry.example/kubeflow:1", Command: []string{"/opt/mpi-operator"}}, replicas: 1, want: stopIt},
		"mpi-operator behind a shell":        {container: corev1.Container{Image: "registry.example/kubeflow:1", Command: []string{"sh", "-c", "exec /opt/mpi-operator -v 2"}}, replicas: 1, want: stopIt},
		"mpi-operator that is stopped":       {container: corev1.Container{Image: "mpioperator/mpi-operator:0.8.0"}},
		"an image of a similar name":         {container: corev1.Container{Image: "registry.example/mpi-operator-docs:1"}, replicas: 1},
		"somebody who knows its name":        {container: corev1.Container{Image: "registry.example/prober:1", Args: []string{"mpi-operator"}}, replicas: 1},
		"training-operator":                  {container: corev1.Container{Image: "kubeflow/training-operator:v1-8", Command: []string{"/manager"}}, replicas: 1, want: withoutIt},
		"training-operator with MPIJobs":     {container: corev1.Container{Image: "kubeflow/training-operator:v1-8", Args: []string{"--enable-scheme=TFJob", "--enable-scheme=MPIJob"}}, replicas: 1, want: withoutIt},
		"training-operator without them":     {container: corev1.Container{Image: "kubeflow/training-operator:v1-8", Args: []string{"--enable-scheme=tfjob", "--enable-scheme=pytorchjob"}}, replicas: 1},
		"training-operator that is stopped":  {container: corev1.Container{Image: "kubeflow/training-operator:v1-8"}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.create(t, deployment(tc.container, tc.replicas))
			if tc.want == "" {
				cluster.wantInstallable(t)
				return
			}
			cluster.wantRefused(t, "Deployment theirs in namespace default", tc.want)
		})
	}
}

// With a share of the MPIJobs, Trireme is installed next to mpi-operator, if that will
// be able to create its pods and leaves ours alone.
func besideMPIOperator(t *testing.T, cluster *cluster) {
	const oldImage, image = "mpioperator/mpi-operator:0.5.0", "mpioperator/mpi-operator:0.8.2"
	for name, tc := range map[string]struct {
		image, account, manage, allowed string
		// want is the suggested remedy; empty if there is no obstacle.
		want string
	}{
		"all":                  {image: image, account: "theirs", manage: "all", allowed: "default/theirs", want: "--set mpiJobs.manage=new --set mpiJobs.serviceAccount=default/theirs"},
		"new":                  {image: image, account: "theirs", manage: "new", allowed: "default/theirs"},
		"named":                {image: image, account: "theirs", manage: "named", allowed: "default/theirs"},
		"an account unknown":   {image: image, account: "theirs", manage: "new", allowed: "mpi-operator/mpi-operator", want: "--set mpiJobs.serviceAccount=default/theirs"},
		"the default account":  {image: image, manage: "new", allowed: "mpi-operator/mpi-operator", want: "--set mpiJobs.serviceAccount=default/default"},
		"an old version":       {image: oldImage, account: "theirs", manage: "new", allowed: "default/theirs", want: "older than v0.6"},
		"an old version, by v": {image: "mpioperator/mpi-operator:v0.4", account: "theirs", manage: "new", allowed: "default/theirs", want: "older than v0.6"},
	} {
		t.Run(name, func(t *testing.T) {
			theirs := deployment(corev1.Container{Image: tc.image}, 1)
			theirs.Spec.Template.Spec.ServiceAccountName = tc.account
			cluster.create(t, theirs)
			settings := []string{"--set", "mpiJobs.manage=" + tc.manage, "--set", "mpiJobs.serviceAccount=" + tc.allowed}
			output, err := cluster.helm(t, "install", append([]string{"--dry-run=server"}, settings...)...)
			if tc.want == "" && err != nil {
				t.Errorf("it cannot be installed: %v\n%s", err, output)
			}
			if tc.want != "" && (err == nil || !strings.Contains(output, tc.want)) {
				t.Errorf("want it refused with %q, got (%v):\n%s", tc.want, err, output)
			}
		})
	}
}

// Before Trireme runs all MPIJobs, mpi-operator must have completed its own.
func unfinishedJobsOfMPIOperator(t *testing.T, cluster *cluster) {
	t.Cleanup(cluster.forgetKinds(t))
	cluster.addKinds(t, "charts/trireme/crds/kubeflow.org_mpijobs.yaml")
	setup := cluster.setup(t, io.Discard)
	cluster.kubectl(t, "apply", "-f", "config/samples/mpijob.yaml")
	status := func(patch string) {
		t.Helper()
		cluster.kubectl(t, "patch", "mpijob", "pytorch-distributed", "--subresource=status", "--type=merge", "-p", `{"status":`+patch+`}`)
	}
	if err := setup.RefuseJobsOfMPIOperator(t.Context()); err != nil {
		t.Errorf("a new job: %v", err)
	}
	status(`{"conditions":[{"type":"Running","status":"True"}]}`)
	err := setup.RefuseJobsOfMPIOperator(t.Context())
	if err == nil || !strings.Contains(err.Error(), "1 jobs that mpi-operator has started are not finished: MPIJob default/pytorch-distributed.") {
		t.Errorf("a running job: %v", err)
	}
	// It is not ours, so it does not stop us from being uninstalled.
	if err := setup.Uninstall(t.Context(), nil); err != nil {
		t.Errorf("uninstall: %v", err)
	}
	status(`{"completionTime":"2026-01-01T00:00:00Z"}`)
	if err := setup.RefuseJobsOfMPIOperator(t.Context()); err != nil {
		t.Errorf("a finished job: %v", err)
	}
}

// Kubernetes lets no version of a kind go that may still be stored.
func storedVersions(t *testing.T, cluster *cluster) {
	for name, tc := range map[string]struct {
		versions []string
		refused  bool
	}{
		"only ours":                {versions: []string{"v2beta1"}},
		"only an old one":          {versions: []string{"v1"}, refused: true},
		"an old one and ours":      {versions: []string{"v1", "v2beta1"}, refused: true},
		"ours and one of tomorrow": {versions: []string{"v2beta1", "v3"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster.createKind(t, tc.versions)
			if !tc.refused {
				cluster.wantInstallable(t)
				return
			}
			old := tc.versions[slices.IndexFunc(tc.versions, func(version string) bool { return version != "v2beta1" })]
			cluster.wantRefused(t, "stored MPIJobs as "+old, "kubectl get mpijobs."+old+".kubeflow.org", "kubectl delete customresourcedefinition mpijobs.kubeflow.org")
		})
	}
}

// What the message tells people to do is what helps.
func wayOutOfAnOldVersion(t *testing.T, cluster *cluster) {
	cluster.createKind(t, []string{"v1", "v2beta1"})
	output, err := cluster.helm(t, "install", "--dry-run=server")
	if err == nil {
		t.Fatalf("it can be installed:\n%s", output)
	}
	for line := range strings.Lines(output) {
		if command := strings.TrimSpace(line); strings.HasPrefix(command, "kubectl patch") {
			if output, err := cluster.run(t, nil, "bash", "-c", command); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, output)
			}
		}
	}
	cluster.wantInstallable(t)
}

// The real kind of mpi-operator is no obstacle.
func kindOfMPIOperator(t *testing.T, cluster *cluster) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/mpi-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(strings.TrimSpace(string(module)), "manifests/base/kubeflow.org_mpijobs.yaml")
	cluster.kubectl(t, "create", "-f", theirs)
	t.Cleanup(cluster.forgetKinds(t))
	cluster.wantInstallable(t)
	// And ours takes its place.
	if err := cluster.setup(t, io.Discard).UpdateCRDs(t.Context(), charts.CRDs()[1:2]); err != nil {
		t.Fatal(err)
	}
	output, err := cluster.run(t, nil, "kubectl", "get", "crd", "mpijobs.kubeflow.org", "-o", "jsonpath={.spec.versions[0].additionalPrinterColumns[*].name}")
	if err != nil || !strings.Contains(output, "Workers") {
		t.Errorf("the columns of MPIJobs are %q (%v)", output, err)
	}
}

// A user who may not see whether another operator runs is not told that none does.
func whoeverMayNotLook(t *testing.T, cluster *cluster) {
	kubeconfig := cluster.kubeconfig
	defer func() { cluster.kubeconfig = kubeconfig }()
	cluster.kubeconfig = cluster.identity(t, "nobody")
	if output, err := cluster.helm(t, "install", "--dry-run=server"); err == nil || !strings.Contains(output, `User "nobody" cannot`) {
		t.Errorf("it can be installed (%v):\n%s", err, output)
	}
}

func settingsThatLack(t *testing.T, cluster *cluster) {
	for name, settings := range map[string][]string{"no images": nil, "no version": {"REGISTRY=registry.example/trireme"}} {
		t.Run(name, func(t *testing.T) {
			output, err := cluster.run(t, settings, "config/install")
			if want := "make install REGISTRY="; err == nil || !strings.Contains(output, want) {
				t.Errorf("want it refused with %q, got (%v):\n%s", want, err, output)
			}
		})
	}
}

func (cluster *cluster) wantInstallable(t *testing.T) {
	t.Helper()
	if output, err := cluster.helm(t, "install", "--dry-run=server"); err != nil {
		t.Errorf("it cannot be installed: %v\n%s", err, output)
	}
}

func (cluster *cluster) wantRefused(t *testing.T, want ...string) {
	t.Helper()
	output, err := cluster.helm(t, "install", "--dry-run=server")
	if err == nil {
		t.Errorf("it can be installed:\n%s", output)
	}
	for _, text := range want {
		if !strings.Contains(output, text) {
			t.Errorf("no word of %q in:\n%s", text, output)
		}
	}
}

// mpiJobs is a kind as an older operator has left it; the last version is the one
// that is stored.
func mpiJobs(versions ...string) *apiextensionsv1.CustomResourceDefinition {
	kind := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "mpijobs.kubeflow.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "kubeflow.org",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "MPIJob", ListKind: "MPIJobList", Plural: "mpijobs", Singular: "mpijob"},
		},
	}
	for i, version := range versions {
		kind.Spec.Versions = append(kind.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == len(versions)-1,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: new(true),
			}},
		})
	}
	return kind
}

// createKind makes such a kind, of which objects were stored in these versions.
func (cluster *cluster) createKind(t *testing.T, stored []string) {
	t.Helper()
	kind := mpiJobs(stored...)
	if err := cluster.client.Create(t.Context(), kind); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.forgetKinds(t))
	status := fmt.Sprintf(`{"status":{"storedVersions":["%s"]}}`, strings.Join(stored, `","`))
	if err := cluster.client.Status().Patch(t.Context(), kind, client.RawPatch("application/merge-patch+json", []byte(status))); err != nil {
		t.Fatal(err)
	}
}

// forgetKinds waits until all kinds are gone.
func (cluster *cluster) forgetKinds(t *testing.T) func() {
	return func() { cluster.kubectl(t, "delete", "customresourcedefinitions", "--all", "--timeout=60s") }
}

// addKinds creates CRDs and waits until they are served. A CRD that the API server has
// not looked at yet has no conditions, which `kubectl wait` takes for an error.
func (cluster *cluster) addKinds(t *testing.T, path string) {
	t.Helper()
	cluster.kubectl(t, "apply", "--server-side", "-f", path)
	eventually.Succeeds(t, "the CRDs are established", func() error {
		output, err := cluster.run(t, nil, "kubectl", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
}

func (cluster *cluster) kubectl(t *testing.T, arguments ...string) {
	t.Helper()
	if output, err := cluster.run(t, nil, "kubectl", arguments...); err != nil {
		t.Fatalf("kubectl %s: %v\n%s", arguments, err, output)
	}
}

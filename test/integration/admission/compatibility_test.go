// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	upstream "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// mpiOperator is the source of the operator whose jobs must keep working, from
// the module cache.
func mpiOperator(t testing.TB) string {
	t.Helper()
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/mpi-operator").Output()
	if err != nil {
		t.Fatalf("find mpi-operator: %v", err)
	}
	return strings.TrimSpace(string(output))
}

// yamlFiles are all manifests below a folder.
func yamlFiles(t testing.TB, folder string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests in %s: %v", folder, err)
	}
	return files
}

// Every file is created as it is, in the order of its documents and at once, as
// kubectl apply does it.
func TestManifestsAreAccepted(t *testing.T) {
	cluster := sharedCluster.For(t)
	for kind, folder := range map[string]string{
		"test manifests":        filepath.Join(repository, "test/manifests"),
		"reference runtimes":    filepath.Join(repository, "charts/trireme/files/runtimes"),
		"samples of the kinds":  filepath.Join(repository, "config/samples"),
		"mpi-operator examples": filepath.Join(mpiOperator(t), "examples/v2beta1"),
	} {
		namespace := cluster.namespace(t, nil)
		for _, file := range yamlFiles(t, folder) {
			// Of the size of the local cluster, where the documentation's test runs it.
			if file == filepath.Join(repository, "config/samples/hello.yaml") {
				continue
			}
			t.Run(kind+"/"+filepath.Base(file), func(t *testing.T) {
				for _, document := range deployed.Documents(t, file) {
					// Some of mpi-operator's share a name; some of ours are of the cluster.
					if document.GetKind() == "MPIJob" || document.GetKind() == "TrainJob" || document.GetKind() == "TrainingRuntime" {
						document.SetNamespace(namespace)
					}
					err := cluster.client.Create(t.Context(), document, client.FieldValidation("Strict"))
					if apierrors.IsAlreadyExists(err) {
						err = cluster.client.Create(t.Context(), document, client.FieldValidation("Strict"), dryRun)
					}
					if err != nil && !apierrors.IsAlreadyExists(err) {
						t.Error(err)
					}
					if kind == "mpi-operator examples" {
						_ = cluster.client.Delete(t.Context(), document)
					}
				}
			})
		}
	}
}

// The five manifests that users are promised, by name.
func TestPromisedManifestsExist(t *testing.T) {
	for _, name := range []string{"simple-mpijob.yaml", "gpu-mpijob.yaml", "intel-mpi-job.yaml", "volcano-scheduling.yaml", "network-policy-restricted.yaml", "README.md"} {
		deployed.Read(t, filepath.Join(repository, "test/manifests/mpijob", name))
	}
}

// What mpi-operator's API server stored must read back unchanged once our CRD
// has taken the place of its own.
func TestObjectsOfMPIOperatorReadBackUnchanged(t *testing.T) {
	theirs := filepath.Join(mpiOperator(t), "manifests/base/kubeflow.org_mpijobs.yaml")
	environment := controlplane.Start(t, &envtest.Environment{CRDDirectoryPaths: []string{theirs}, ErrorIfCRDPathMissing: true})
	scheme := k8sruntime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server, err := client.New(environment.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var stored []*unstructured.Unstructured
	objects := []*unstructured.Unstructured{fullUpstreamJob(t)}
	for _, file := range yamlFiles(t, filepath.Join(mpiOperator(t), "examples/v2beta1")) {
		objects = append(objects, deployed.Documents(t, file)...)
	}
	for i, object := range objects {
		object.SetName("job-" + string(rune('a'+i)))
		object.SetNamespace("default")
		status := object.Object["status"]
		if err := server.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		if status != nil {
			object.Object["status"] = status
			if err := server.Status().Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
		stored = append(stored, object)
	}

	replaceCRD(t, server)
	for _, before := range stored {
		after := &unstructured.Unstructured{}
		after.SetGroupVersionKind(before.GroupVersionKind())
		if err := server.Get(t.Context(), client.ObjectKeyFromObject(before), after); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before.Object, after.Object); diff != "" {
			t.Errorf("%s reads back otherwise (-stored +read):\n%s", before.GetName(), diff)
		}
	}
}

// replaceCRD puts our CRD in the place of the one that is there, and waits until
// the API server serves it: only ours has short names.
func replaceCRD(t *testing.T, server client.Client) {
	t.Helper()
	var ours, there apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(deployed.Read(t, filepath.Join(repository, "charts/trireme/crds/kubeflow.org_mpijobs.yaml")), &ours); err != nil {
		t.Fatal(err)
	}
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(&ours), &there); err != nil {
		t.Fatal(err)
	}
	there.Spec = ours.Spec
	if err := server.Update(t.Context(), &there); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "our CRD is served", func() error {
		probe := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
			"metadata": map[string]any{"namespace": "default", "name": "probe"},
			"spec":     map[string]any{"mpiReplicaSpecs": map[string]any{}, "networkPolicy": map[string]any{"template": "Default"}},
		}}
		return server.Create(t.Context(), probe, client.FieldValidation("Strict"), dryRun)
	})
}

// fullUpstreamJob has every field of mpi-operator's type.
func fullUpstreamJob(t testing.TB) *unstructured.Unstructured {
	t.Helper()
	now := metav1.Now().Rfc3339Copy()
	job := &upstream.MPIJob{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubeflow.org/v2beta1", Kind: "MPIJob"},
		Spec: upstream.MPIJobSpec{
			SlotsPerWorker: ptr.To[int32](2), RunLauncherAsWorker: ptr.To(true), SSHAuthMountPath: "/home/mpiuser/.ssh",
			LauncherCreationPolicy: upstream.LauncherCreationPolicyWaitForWorkersReady, MPIImplementation: upstream.MPIImplementationIntel,
			RunPolicy: upstream.RunPolicy{
				CleanPodPolicy: ptr.To(upstream.CleanPodPolicyNone), TTLSecondsAfterFinished: ptr.To[int32](60), ActiveDeadlineSeconds: ptr.To[int64](3600),
				BackoffLimit: ptr.To[int32](3), Suspend: ptr.To(true), ManagedBy: ptr.To(upstream.KubeflowJobController),
				SchedulingPolicy: &upstream.SchedulingPolicy{
					MinAvailable: ptr.To[int32](3), Queue: "default", PriorityClass: "high", ScheduleTimeoutSeconds: ptr.To[int32](30),
					MinResources: ptr.To(resources("cpu", "2")),
				},
			},
			MPIReplicaSpecs: map[upstream.MPIReplicaType]*upstream.ReplicaSpec{
				upstream.MPIReplicaTypeLauncher: {Replicas: ptr.To[int32](1), Template: template("launcher", "mpirun"), RestartPolicy: upstream.RestartPolicyExitCode},
				upstream.MPIReplicaTypeWorker:   {Replicas: ptr.To[int32](2), Template: template("worker"), RestartPolicy: upstream.RestartPolicyAlways},
			},
		},
		Status: upstream.JobStatus{
			Conditions: []upstream.JobCondition{{Type: upstream.JobCreated, Status: "True", Reason: "MPIJobCreated", Message: "created", LastUpdateTime: now, LastTransitionTime: now}},
			ReplicaStatuses: map[upstream.MPIReplicaType]*upstream.ReplicaStatus{
				upstream.MPIReplicaTypeWorker: {Active: 2, Succeeded: 1, Failed: 1, Selector: "a=b", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}},
			},
			StartTime: &now, CompletionTime: &now, LastReconcileTime: &now,
		},
	}
	content, err := k8sruntime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

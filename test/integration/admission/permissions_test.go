// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// user is a client of somebody who has these roles in a namespace, and no others.
func (cluster *cluster) user(t *testing.T, namespace, name string, roles ...string) client.Client {
	t.Helper()
	for _, document := range deployed.UserRoles(t) {
		cluster.createIfMissing(t, document)
	}
	for _, role := range roles {
		cluster.bind(t, namespace, name, role, false)
	}
	identity, err := cluster.environment.AddUser(envtest.User{Name: name, Groups: []string{"system:authenticated"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cluster.as(t, identity.Config())
}

// grant gives somebody one permission on one object.
func (cluster *cluster) grant(t *testing.T, namespace, name, verb, resource, object string) {
	t.Helper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "grant-"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{object}, Verbs: []string{verb}}},
	}
	cluster.create(t, role)
	cluster.create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "grant-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	})
}

// mayEventually waits until the API server knows the bindings of a user.
func mayEventually(t *testing.T, user client.Client, job func() client.Object) {
	t.Helper()
	eventually.Succeeds(t, "the user may create jobs", func() error { return user.Create(t.Context(), job(), dryRun) })
}

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func secretVolume(name string) corev1.Volume {
	return corev1.Volume{Name: "stolen", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}
}

func secretVariable(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: "STOLEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named(name), Key: "key"}}}
}

func workerPod(job *v2beta1.MPIJob) *corev1.PodSpec {
	return &job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec
}

// Whoever may create MPIJobs, and nothing else, does not reach through their pods what
// they could not reach without.
func TestMPIJobUserReachesNoSecret(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	mallory := cluster.user(t, namespace, "mallory-mpi", "mpijob-user")
	mayEventually(t, mallory, func() client.Object { return mpiJob(namespace, "plain") })
	pod := workerAt + ".template.spec."
	for name, tc := range map[string]struct {
		change             func(*v2beta1.MPIJob)
		at, verb, resource string
	}{
		"volume": {func(job *v2beta1.MPIJob) { workerPod(job).Volumes = []corev1.Volume{secretVolume("volume")} }, "volumes[0].secret.secretName", "get", "secrets"},
		"projected": {func(job *v2beta1.MPIJob) {
			source := corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named("projected")}}
			workerPod(job).Volumes = []corev1.Volume{{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}}}
		}, "volumes[0].projected.sources[0].secret.name", "get", "secrets"},
		"csi": {func(job *v2beta1.MPIJob) {
			source := &corev1.CSIVolumeSource{Driver: "csi.example", NodePublishSecretRef: &corev1.LocalObjectReference{Name: "csi"}}
			workerPod(job).Volumes = []corev1.Volume{{Name: "csi", VolumeSource: corev1.VolumeSource{CSI: source}}}
		}, "volumes[0].csi.nodePublishSecretRef.name", "get", "secrets"},
		"env": {func(job *v2beta1.MPIJob) { worker(job).Env = []corev1.EnvVar{secretVariable("env")} }, "containers[0].env[0].valueFrom.secretKeyRef.name", "get", "secrets"},
		"env-from": {func(job *v2beta1.MPIJob) {
			worker(job).EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("env-from")}}}
		}, "containers[0].envFrom[0].secretRef.name", "get", "secrets"},
		"init": {func(job *v2beta1.MPIJob) {
			workerPod(job).InitContainers = []corev1.Container{{Name: "init", Image: "registry.example/train:1", Env: []corev1.EnvVar{secretVariable("init")}}}
		}, "initContainers[0].env[0].valueFrom.secretKeyRef.name", "get", "secrets"},
		"pull": {func(job *v2beta1.MPIJob) {
			workerPod(job).ImagePullSecrets = []corev1.LocalObjectReference{named("pull")}
		}, "imagePullSecrets[0].name", "get", "secrets"},
		"robot": {func(job *v2beta1.MPIJob) { workerPod(job).ServiceAccountName = "robot" }, "serviceAccountName", "impersonate", "serviceaccounts"},
	} {
		t.Run(name, func(t *testing.T) {
			create := func() error { return mallory.Create(t.Context(), mpiJob(namespace, "job-"+name, tc.change), dryRun) }
			wantCauses(t, create(), wantCause{pod + tc.at, tc.verb + " this "})
			cluster.grant(t, namespace, "mallory-mpi", tc.verb, tc.resource, name)
			eventually.Succeeds(t, "whoever has the permission may", create)
		})
	}
	t.Run("the ServiceAccount that every pod has", func(t *testing.T) {
		job := mpiJob(namespace, "default-account", func(job *v2beta1.MPIJob) { workerPod(job).ServiceAccountName = "default" })
		if err := mallory.Create(t.Context(), job, dryRun); err != nil {
			t.Error(err)
		}
	})
	t.Run("later", func(t *testing.T) {
		job := mpiJob(namespace, "later", func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.Suspend = new(true) })
		if err := mallory.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		workerPod(job).Volumes = []corev1.Volume{secretVolume("another")}
		wantCauses(t, mallory.Update(t.Context(), job), wantCause{pod + "volumes", "field is immutable"})
	})
}

// What a runtime names is for everybody who may use it; what the job names is not.
func TestTrainJobEditorReachesNoSecret(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi", func(spec *v2alpha1.TrainingRuntimeSpec) {
		pod := &spec.Template.Spec.ReplicatedJobs[1].Template.Spec
		pod.ServiceAccountName, pod.ImagePullSecrets = "robot", []corev1.LocalObjectReference{named("registry")}
		pod.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "of-the-runtime"}}}}
	}))
	mallory := cluster.user(t, namespace, "mallory-train", "trainjob-editor")
	mayEventually(t, mallory, func() client.Object { return trainJob(namespace, "plain") })
	source := func(name string) *v2alpha1.Source {
		return &v2alpha1.Source{StorageURI: "s3://bucket/data", SecretRef: &v2alpha1.SecretRef{Name: name}}
	}
	storage := &v2alpha1.InitializerStorage{ClaimName: "data"}
	for name, tc := range map[string]struct {
		change func(*v2alpha1.TrainJob)
		at     string
	}{
		"volume": {func(job *v2alpha1.TrainJob) { job.Spec.Trainer.Volumes = []corev1.Volume{secretVolume("volume")} }, "spec.trainer.volumes[0].secret.secretName"},
		"env":    {func(job *v2alpha1.TrainJob) { job.Spec.Trainer.Env = []corev1.EnvVar{secretVariable("env")} }, "spec.trainer.env[0].valueFrom.secretKeyRef.name"},
		"dataset": {func(job *v2alpha1.TrainJob) {
			job.Spec.Initializer = &v2alpha1.Initializer{Dataset: source("dataset"), Storage: storage}
		}, "spec.initializer.dataset.secretRef.name"},
		"model": {func(job *v2alpha1.TrainJob) {
			job.Spec.Initializer = &v2alpha1.Initializer{Model: source("model"), Storage: storage}
		}, "spec.initializer.model.secretRef.name"},
	} {
		t.Run(name, func(t *testing.T) {
			create := func() error { return mallory.Create(t.Context(), trainJob(namespace, "job-"+name, tc.change), dryRun) }
			wantCauses(t, create(), wantCause{tc.at, "get this Secret"})
			cluster.grant(t, namespace, "mallory-train", "get", "secrets", name)
			eventually.Succeeds(t, "whoever has the permission may", create)
		})
	}
}

// The key of a job opens its workers. Nobody gets it through a job of their own,
// whatever else they may do.
func TestKeysOfOtherJobsAreRefused(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	cluster.create(t, mpiJob(namespace, "victim"))
	cluster.create(t, trainJob(namespace, "other"))
	for secret, want := range map[string]string{"victim-ssh-key": `is the SSH key of MPIJob "victim"`, "other-ssh": `is the SSH key of TrainJob "other"`} {
		refusalOf(t, want, func() error {
			return cluster.client.Create(t.Context(), mpiJob(namespace, "thief", func(job *v2beta1.MPIJob) {
				workerPod(job).Volumes = []corev1.Volume{secretVolume(secret)}
			}), dryRun)
		})
		refusalOf(t, want, func() error {
			return cluster.client.Create(t.Context(), trainJob(namespace, "thief", func(job *v2alpha1.TrainJob) {
				job.Spec.Trainer.Env = []corev1.EnvVar{secretVariable(secret)}
			}), dryRun)
		})
	}
}

// Whoever may create pods gains nothing by a job, and is not asked for more. Without
// Kubernetes' controllers nobody fills the role edit: these are its parts.
func TestEditorsRunTheExamplesOfMPIOperator(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	editor := cluster.user(t, namespace, "editor", "system:aggregate-to-edit", "mpijob-user", "trainjob-editor")
	mayEventually(t, editor, func() client.Object { return mpiJob(namespace, "plain") })
	for _, file := range yamlFiles(t, filepath.Join(mpiOperator(t), "examples/v2beta1")) {
		for _, document := range deployed.Documents(t, file) {
			if document.GetKind() != "MPIJob" {
				continue
			}
			t.Run(filepath.Base(file), func(t *testing.T) {
				document.SetNamespace(namespace)
				if err := editor.Create(t.Context(), document.DeepCopy(), dryRun); err != nil {
					t.Error(err)
				}
				withSecrets := document.DeepCopy()
				pod := []string{"spec", "mpiReplicaSpecs", "Worker", "template", "spec"}
				if err := unstructured.SetNestedField(withSecrets.Object, "robot", append(pod, "serviceAccountName")...); err != nil {
					t.Fatal(err)
				}
				if err := unstructured.SetNestedSlice(withSecrets.Object, []any{map[string]any{"name": "registry"}}, append(pod, "imagePullSecrets")...); err != nil {
					t.Fatal(err)
				}
				if err := editor.Create(t.Context(), withSecrets, dryRun); err != nil {
					t.Errorf("with a ServiceAccount and a Secret: %v", err)
				}
			})
		}
	}
}

// Jobs are found by their labels, whoever named them.
func TestJobsAreFoundByTheirLabels(t *testing.T) {
	cluster := sharedCluster.For(t)
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	cluster.create(t, mpiJob(namespace, "resnet"))
	cluster.create(t, trainJob(namespace, "bert", func(job *v2alpha1.TrainJob) { job.Labels = map[string]string{"team": "vision"} }))
	generated := mpiJob(namespace, "", func(job *v2beta1.MPIJob) { job.GenerateName = "llama-" })
	cluster.create(t, generated)
	for selector, want := range map[string]string{
		"training.kubeflow.org/job-name=resnet":                                        "mpijob.kubeflow.org/resnet",
		"training.kubeflow.org/job-name=bert,team=vision":                              "trainjob.kubeflow.org/bert",
		"training.kubeflow.org/job-type=trainjob":                                      "trainjob.kubeflow.org/bert",
		"training.kubeflow.org/job-name=" + generated.Name:                             "mpijob.kubeflow.org/" + generated.Name,
		"training.kubeflow.org/job-type=mpijob,training.kubeflow.org/job-name!=resnet": "mpijob.kubeflow.org/" + generated.Name,
	} {
		output, err := cluster.kubectl(t, "", "get", "mpijobs,trainjobs", "-n", namespace, "-l", selector, "-o", "name")
		if got := strings.TrimSpace(output); err != nil || got != want {
			t.Errorf("%s finds %q, want %q (%v)", selector, got, want, err)
		}
	}
	// Whoever takes them away does not hide the job.
	job := mpiJob(namespace, "resnet")
	if err := cluster.client.Patch(t.Context(), job, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":null}}`))); err != nil {
		t.Fatal(err)
	}
	if job.Labels["training.kubeflow.org/job-name"] != "resnet" || job.Labels["training.kubeflow.org/job-type"] != "mpijob" {
		t.Errorf("the labels are %v", job.Labels)
	}
}

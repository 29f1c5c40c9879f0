// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func fetching(t *testing.T, options ...trainOption) Plan {
	t.Helper()
	return whole{job: ofTrainJob(options...), state: State{Stage: Initializing}}.plan(t)
}

// initializerIn is the only pod of a plan.
func initializerIn(t *testing.T, plan Plan) *corev1.Pod {
	t.Helper()
	if len(plan.Pods) != 1 {
		t.Fatalf("%d pods: %v", len(plan.Pods), describeAll(t, podObjects(plan)))
	}
	return plan.Pods[0]
}

// The TrainJob owns the initializer's pod itself: there is no workload yet.
func TestInitializerPod(t *testing.T) {
	j := whole{job: ofTrainJob(fetches("s3://bucket/set", ""), claim("shared")), noWorkload: true, state: State{Stage: Initializing, Restart: 1}}
	pod := initializerIn(t, j.plan(t))
	want := metav1.ObjectMeta{
		Namespace: "team-a", Name: "bert-initializer-r1",
		Labels: map[string]string{
			training.LabelJobName: "bert", training.LabelJobType: training.JobTypeTrainJob, training.LabelReplicaType: training.RoleInitializer,
			training.LabelJobRole: training.RoleInitializer, training.LabelRestart: "1", training.IstioInject: "false",
		},
		Annotations:     map[string]string{training.IstioInject: "false"},
		OwnerReferences: []metav1.OwnerReference{OwnerOf(trainJob())},
	}
	if diff := cmp.Diff(want, pod.ObjectMeta); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}

func TestFetches(t *testing.T) {
	type fetch struct {
		Name, Command, Secret string
		// Mounts are volumes and their paths; read-only ones are marked.
		Mounts []string
	}
	workspace := "trireme-workspace /workspace"
	tests := map[string]struct {
		options []trainOption
		want    []fetch
	}{
		"a dataset from S3": {
			[]trainOption{fetches("s3://bucket/set", ""), claim("shared")},
			[]fetch{{"dataset", "/initializer fetch --kind dataset s3://bucket/set /workspace/dataset", "", []string{workspace}}},
		},
		"a model from the hub, with a token": {
			[]trainOption{fetches("", "hf://org/model"), func(trainJob *v2alpha1.TrainJob, _ *v2alpha1.TrainingRuntimeSpec) {
				trainJob.Spec.Initializer.Model.SecretRef = &v2alpha1.SecretRef{Name: "hub"}
			}, claim("shared")},
			[]fetch{{"model", "/initializer fetch --kind model hf://org/model /workspace/model", "hub", []string{workspace}}},
		},
		"both, at the same time": {
			[]trainOption{fetches("s3://bucket/set", "hf://org/model"), secrets("s3", "hub"), claim("shared")},
			[]fetch{
				{"dataset", "/initializer fetch --kind dataset s3://bucket/set /workspace/dataset", "s3", []string{workspace}},
				{"model", "/initializer fetch --kind model hf://org/model /workspace/model", "hub", []string{workspace}},
			},
		},
		"both from PVCs, one of them the workspace itself": {
			[]trainOption{fetches("pvc://archive/sets/one", "pvc://shared"), claim("shared")},
			[]fetch{
				{"dataset", "/initializer fetch --kind dataset --from /source pvc://archive/sets/one /workspace/dataset", "", []string{workspace, "trireme-from-dataset /source read-only"}},
				{"model", "/initializer fetch --kind model --from /source pvc://shared /workspace/model", "", []string{workspace, "trireme-from-model /source read-only"}},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := initializerIn(t, fetching(t, tc.options...)).Spec
			var got []fetch
			for _, container := range pod.Containers {
				found := fetch{Name: container.Name, Command: strings.Join(container.Command, " ")}
				for _, from := range container.EnvFrom {
					found.Secret += from.SecretRef.Name
				}
				for _, mount := range container.VolumeMounts {
					text := mount.Name + " " + mount.MountPath
					if mount.ReadOnly {
						text += " read-only"
					}
					found.Mounts = append(found.Mounts, text)
				}
				if container.Image != initializerImage || len(container.Args) > 0 || len(container.Env) > 0 {
					t.Errorf("%s is of %s, with %v and %v", container.Name, container.Image, container.Args, container.Env)
				}
				got = append(got, found)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what is fetched (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClaims(t *testing.T) {
	tests := map[string]struct {
		options    []trainOption
		wantMounts []string
		wantMode   corev1.PersistentVolumeAccessMode
		wantClass  string
	}{
		"an existing PVC":               {options: []trainOption{nodes(3), fetches("s3://bucket/set", ""), claim("shared")}, wantMounts: []string{"shared"}},
		"a new PVC for several workers": {options: []trainOption{nodes(3), fetches("s3://bucket/set", ""), newClaim("2Ti", "fast")}, wantMounts: []string{"bert-workspace"}, wantMode: corev1.ReadWriteMany, wantClass: "fast"},
		"a new PVC for two workers":     {options: []trainOption{nodes(2), fetches("s3://bucket/set", ""), newClaim("2Ti", "")}, wantMounts: []string{"bert-workspace"}, wantMode: corev1.ReadWriteMany},
		"a new PVC for one worker":      {options: []trainOption{nodes(1), fetches("s3://bucket/set", ""), newClaim("2Ti", "")}, wantMounts: []string{"bert-workspace"}, wantMode: corev1.ReadWriteOnce},
		"copied from another PVC":       {options: []trainOption{fetches("pvc://archive/sets", ""), claim("shared")}, wantMounts: []string{"shared", "archive"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := fetching(t, tc.options...)
			if diff := cmp.Diff(tc.wantMounts, claimsOf(&initializerIn(t, plan).Spec)); diff != "" {
				t.Errorf("the initializer's claims (-want +got):\n%s", diff)
			}
			// The job's pods mount the fetched data, but not its source.
			for name, pod := range podsOf(whole{job: ofTrainJob(tc.options...)}.plan(t)) {
				if diff := cmp.Diff(tc.wantMounts[:1], claimsOf(&pod.Spec)); diff != "" {
					t.Errorf("claims of %s (-want +got):\n%s", name, diff)
				}
				if !slices.Contains(container(pod).VolumeMounts, corev1.VolumeMount{Name: "trireme-workspace", MountPath: "/workspace"}) {
					t.Errorf("%s does not have /workspace", name)
				}
			}
			if tc.wantMode == "" {
				if len(plan.Ensure) > 0 {
					t.Errorf("also made: %v", describeAll(t, plan.Ensure))
				}
				return
			}
			j := one[*corev1.PersistentVolumeClaim](t, plan.Ensure)
			if !slices.Equal(j.Spec.AccessModes, []corev1.PersistentVolumeAccessMode{tc.wantMode}) || j.Spec.Resources.Requests.Storage().String() != "2Ti" {
				t.Errorf("the claim is %v of %s", j.Spec.AccessModes, j.Spec.Resources.Requests.Storage())
			}
			if class := j.Spec.StorageClassName; (class != nil) != (tc.wantClass != "") || class != nil && *class != tc.wantClass {
				t.Errorf("the class is %v, want %q", class, tc.wantClass)
			}
		})
	}
}

func claimsOf(pod *corev1.PodSpec) (names []string) {
	for _, volume := range pod.Volumes {
		if volume.PersistentVolumeClaim != nil {
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// The initializer runs with the security settings of the workers.
func TestInitializerSecurity(t *testing.T) {
	likeWorkers := func(template *corev1.PodTemplateSpec) {
		ownEverything(template)
		template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(4711)), SupplementalGroups: []int64{7}}
	}
	pod := initializerIn(t, fetching(t, runtimeDoes(likeWorkers), fetches("s3://bucket/set", ""), claim("shared"))).Spec
	worker := trainJob(runtimeDoes(likeWorkers)).Worker.Template.Spec
	if diff := cmp.Diff(worker.Tolerations, pod.Tolerations); diff != "" {
		t.Errorf("tolerations (-worker +initializer):\n%s", diff)
	}
	if diff := cmp.Diff(worker.ImagePullSecrets, pod.ImagePullSecrets); diff != "" {
		t.Errorf("pull secrets (-worker +initializer):\n%s", diff)
	}
	if pod.ServiceAccountName != "trainer" || pod.RestartPolicy != corev1.RestartPolicyOnFailure {
		t.Errorf("it runs as %s, restarted %s", pod.ServiceAccountName, pod.RestartPolicy)
	}
	want := worker.SecurityContext.DeepCopy()
	want.FSGroup = new(int64(4711))
	if diff := cmp.Diff(want, pod.SecurityContext); diff != "" {
		t.Errorf("security context (-want +got):\n%s", diff)
	}
	// The initializer must not use nodes with GPUs.
	if len(pod.NodeSelector) > 0 || len(pod.Containers[0].Resources.Limits) != 2 {
		t.Errorf("it asks for the nodes %v and for %v", pod.NodeSelector, pod.Containers[0].Resources.Limits)
	}
}

func TestFSGroup(t *testing.T) {
	tests := map[string]struct {
		context *corev1.PodSecurityContext
		want    *int64
	}{
		"the operator's user":    {want: new(int64(1000))},
		"a user of the runtime":  {context: &corev1.PodSecurityContext{RunAsUser: new(int64(7))}, want: new(int64(7))},
		"a group of the runtime": {context: &corev1.PodSecurityContext{RunAsUser: new(int64(7)), FSGroup: new(int64(8))}, want: new(int64(8))},
		"root needs none":        {context: &corev1.PodSecurityContext{RunAsUser: new(int64(0))}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			options := []trainOption{fetches("s3://bucket/set", ""), claim("shared"), runtimeDoes(func(template *corev1.PodTemplateSpec) {
				template.Spec.SecurityContext = tc.context.DeepCopy()
			})}
			for _, stage := range []Stage{Initializing, Active} {
				for name, pod := range podsOf(whole{job: ofTrainJob(options...), state: State{Stage: stage}}.plan(t)) {
					if diff := cmp.Diff(tc.want, pod.Spec.SecurityContext.FSGroup); diff != "" {
						t.Errorf("group of %s (-want +got):\n%s", name, diff)
					}
				}
			}
		})
	}
}

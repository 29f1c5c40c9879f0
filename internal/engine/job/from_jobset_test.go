// SPDX-License-Identifier: Apache-2.0

package job

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
)

// trainerSet is a JobSet as Trainer 2.3.0 creates it from a runtime like its
// deepspeed-distributed, with JobSet's defaults.
func trainerSet(changes ...func(*jobset.JobSet)) *jobset.JobSet {
	keys := corev1.Volume{Name: "mpi-ssh-auth", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "bert-mpi-ssh-auth"}}}
	hostfile := corev1.Volume{Name: "mpi-hostfile", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "bert-mpi-hostfile"},
	}}}
	mounts := []corev1.VolumeMount{{Name: "mpi-ssh-auth", MountPath: "/home/mpiuser/.ssh"}}
	node := replicatedJobOf("node", 3, corev1.PodSpec{
		Volumes: []corev1.Volume{keys},
		Containers: []corev1.Container{{
			Name: "node", Image: "registry.example/mpi:1", Command: []string{"/usr/sbin/sshd"}, Args: []string{"-De", "-f", "/home/mpiuser/.sshd_config"}, VolumeMounts: mounts,
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(2222)}}},
		}},
	})
	launcher := replicatedJobOf("launcher", 1, corev1.PodSpec{
		Volumes: []corev1.Volume{keys, hostfile},
		Containers: []corev1.Container{{
			Name: "node", Image: "registry.example/mpi:1", Command: []string{"mpirun", "--hostfile", "/etc/mpi/hostfile", "python", "train.py"},
			Env:          []corev1.EnvVar{{Name: "OMPI_MCA_plm_rsh_args", Value: "-o ConnectionAttempts=10"}, {Name: "LR", Value: "0.1"}},
			VolumeMounts: append(slices.Clone(mounts), corev1.VolumeMount{Name: "mpi-hostfile", MountPath: "/etc/mpi"}),
		}},
	})
	launcher.DependsOn = []jobset.DependsOn{{Name: "node", Status: jobset.DependencyReady}}
	set := &jobset.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "bert", UID: "set-uid", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob", Name: "bert", UID: "job-uid", Controller: new(true),
		}}},
		Spec: jobset.JobSetSpec{
			ManagedBy:      new(training.ManagedByTrireme),
			Network:        &jobset.Network{EnableDNSHostnames: new(true), PublishNotReadyAddresses: new(true)},
			SuccessPolicy:  &jobset.SuccessPolicy{Operator: jobset.OperatorAll, TargetReplicatedJobs: []string{"launcher"}},
			StartupPolicy:  &jobset.StartupPolicy{StartupPolicyOrder: jobset.AnyOrder},
			ReplicatedJobs: []jobset.ReplicatedJob{node, launcher},
		},
	}
	for _, change := range changes {
		change(set)
	}
	return set
}

func replicatedJobOf(name string, pods int32, pod corev1.PodSpec) jobset.ReplicatedJob {
	return jobset.ReplicatedJob{Name: name, GroupName: "default", Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		Parallelism: &pods, Completions: &pods, CompletionMode: new(batchv1.IndexedCompletion), Template: corev1.PodTemplateSpec{Spec: pod},
	}}}
}

// withInitializers adds the initializers of Trainer's own runtimes, in front.
func withInitializers(set *jobset.JobSet) {
	steps := []jobset.ReplicatedJob{}
	for _, name := range []string{"dataset-initializer", "model-initializer"} {
		steps = append(steps, replicatedJobOf(name, 1, corev1.PodSpec{Containers: []corev1.Container{{
			Name: name, VolumeMounts: []corev1.VolumeMount{{Name: "initializer", MountPath: "/workspace"}},
		}}}))
		set.Spec.ReplicatedJobs[0].DependsOn = append(set.Spec.ReplicatedJobs[0].DependsOn, jobset.DependsOn{Name: name, Status: jobset.DependencyComplete})
	}
	set.Spec.ReplicatedJobs = append(steps, set.Spec.ReplicatedJobs...)
	set.Spec.VolumeClaimPolicies = []jobset.VolumeClaimPolicy{{Templates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "initializer"}}}}}
}

func TestJobSetOfTrainer(t *testing.T) {
	before := trainerSet()
	j := FromJobSet(before, TrainerHosts{Slots: 4, Launcher: true}, testDefaults())
	if diff := cmp.Diff(trainerSet(), before); diff != "" {
		t.Errorf("the JobSet was changed (-want +got):\n%s", diff)
	}
	if len(j.Unsupported) > 0 {
		t.Errorf("unsupported: %q", j.Unsupported)
	}
	if j.Slots != 4 || !j.LauncherRunsRanks || j.Worker.Replicas != 3 || j.Launcher.Replicas != 1 || j.WorldSize() != 16 || j.MPI != OpenMPI || j.Gang.MinMember != 4 {
		t.Errorf("the job is %+v", j)
	}
	if !j.WorkersRunAgent() || j.SSHDirectory != "/home/mpiuser/.ssh" {
		t.Errorf("the workers run %q with keys in %s, want the agent", j.Worker.Template.Spec.Containers[0].Command, j.SSHDirectory)
	}
	if probe := j.Worker.Template.Spec.Containers[0].ReadinessProbe; probe != nil {
		t.Errorf("the probe of the sshd is still there: %v", probe)
	}
	for _, role := range []Role{j.Launcher, j.Worker} {
		pod := role.Template.Spec
		if len(pod.Volumes) > 0 || len(pod.Containers[0].VolumeMounts) > 0 || pod.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("the pod has volumes %v, mounts %v and restartPolicy %s, want none of Trainer's and Never", pod.Volumes, pod.Containers[0].VolumeMounts, pod.RestartPolicy)
		}
	}
	if diff := cmp.Diff([]corev1.EnvVar{{Name: "LR", Value: "0.1"}}, j.Launcher.Template.Spec.Containers[0].Env); diff != "" {
		t.Errorf("the launcher's variables (-want +got):\n%s", diff)
	}
	want := &Set{Jobs: []ReplicatedJob{{Name: "node", Group: "default", Role: "worker"}, {Name: "launcher", Group: "default", Role: "launcher"}}}
	if diff := cmp.Diff(want, j.Set); diff != "" {
		t.Errorf("the set (-want +got):\n%s", diff)
	}
}

func testDefaults() Defaults { return Defaults{ScheduleTimeoutSeconds: 300, MaxNodes: 100} }

func TestMainContainerIsNode(t *testing.T) {
	j := FromJobSet(trainerSet(func(set *jobset.JobSet) {
		pod := &set.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec
		pod.Containers = slices.Insert(pod.Containers, 0, corev1.Container{Name: "sidecar"})
	}), TrainerHosts{Slots: 1}, testDefaults())
	if first := j.Launcher.Template.Spec.Containers[0].Name; first != "node" || len(j.Launcher.Template.Spec.Containers) != 2 {
		t.Errorf("the first container is %s, want node", first)
	}
}

func TestInitializersOfJobSet(t *testing.T) {
	j := FromJobSet(trainerSet(withInitializers, func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.ActiveDeadlineSeconds = new(int64(60))
	}), TrainerHosts{Slots: 1}, testDefaults())
	if len(j.Unsupported) > 0 || len(j.Steps) != 2 || j.Initializers() != 2 {
		t.Fatalf("the job has %d steps and cannot do %q", len(j.Steps), j.Unsupported)
	}
	pod := j.Steps[0].Template.Spec
	if pod.RestartPolicy != corev1.RestartPolicyOnFailure || *pod.ActiveDeadlineSeconds != 60 {
		t.Errorf("the first step is %+v", pod)
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].PersistentVolumeClaim.ClaimName != "initializer-bert" {
		t.Errorf("the first step has the volumes %+v, want the claim of the JobSet", pod.Volumes)
	}
	if len(j.Worker.Template.Spec.Volumes) > 0 {
		t.Errorf("a pod that mounts no claim has %+v", j.Worker.Template.Spec.Volumes)
	}
	want := []Claim{{Name: "initializer-bert"}}
	if diff := cmp.Diff(want, j.Claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}

func TestLifetimeOfJobSet(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*jobset.JobSet)
		want   Lifetime
	}{
		"nothing is set": {func(*jobset.JobSet) {}, Lifetime{}},
		"restarts of the JobSet": {func(set *jobset.JobSet) {
			set.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 3, RestartStrategy: jobset.Recreate}
		}, Lifetime{BackoffLimit: 3}},
		"restarts of the JobSet and of its launcher": {func(set *jobset.JobSet) {
			set.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1}
			set.Spec.ReplicatedJobs[1].Template.Spec.BackoffLimit = new(int32(2))
		}, Lifetime{BackoffLimit: 5}},
		"more restarts than numbers": {func(set *jobset.JobSet) {
			set.Spec.FailurePolicy = &jobset.FailurePolicy{MaxRestarts: 1<<31 - 1}
			set.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = new(int32(1<<31 - 1))
		}, Lifetime{BackoffLimit: maxRestarts}},
		"the shorter of two deadlines, and a TTL": {func(set *jobset.JobSet) {
			set.Spec.TTLSecondsAfterFinished = new(int32(0))
			set.Spec.ReplicatedJobs[0].Template.Spec.ActiveDeadlineSeconds = new(int64(70))
			set.Spec.ReplicatedJobs[1].Template.Spec.ActiveDeadlineSeconds = new(int64(80))
		}, Lifetime{TTLSecondsAfterFinished: new(int32(minTrainerTTL)), ActiveDeadlineSeconds: new(int64(70))}},
	} {
		t.Run(name, func(t *testing.T) {
			test.want.CleanPodPolicy = training.CleanPodPolicyRunning
			j := FromJobSet(trainerSet(test.change), TrainerHosts{Slots: 1}, testDefaults())
			if diff := cmp.Diff(test.want, j.Lifetime); diff != "" || len(j.Unsupported) > 0 {
				t.Errorf("lifetime (-want +got):\n%s\nunsupported: %q", diff, j.Unsupported)
			}
		})
	}
}

func TestPodGroupOfTrainer(t *testing.T) {
	for name, change := range map[string]func(*corev1.PodTemplateSpec){
		"coscheduling": func(template *corev1.PodTemplateSpec) {
			template.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "bert"}
		},
		"Volcano": func(template *corev1.PodTemplateSpec) {
			template.Annotations = map[string]string{"scheduling.k8s.io/group-name": "bert"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := FromJobSet(trainerSet(func(set *jobset.JobSet) { change(&set.Spec.ReplicatedJobs[0].Template.Spec.Template) }), TrainerHosts{Slots: 1}, testDefaults())
			if !j.Gang.External {
				t.Error("the job would get a second PodGroup")
			}
		})
	}
}

func TestHostfileOfTrainer(t *testing.T) {
	for name, test := range map[string]struct {
		text    string
		want    TrainerHosts
		wantErr bool
	}{
		"nodes":                {"bert-node-0-0.bert slots=2\nbert-node-0-1.bert slots=2\n", TrainerHosts{Slots: 2}, false},
		"nodes and launcher":   {"bert-node-0-0.bert slots=8\nbert-launcher-0-0.bert slots=8\n", TrainerHosts{Slots: 8, Launcher: true}, false},
		"no hosts":             {"", TrainerHosts{Slots: 1}, false},
		"different slots":      {"bert-node-0-0.bert slots=2\nbert-node-0-1.bert slots=3\n", TrainerHosts{}, true},
		"not a hostfile":       {"-x", TrainerHosts{}, true},
		"another's launcher":   {"other-launcher-0-0.other slots=1\n", TrainerHosts{Slots: 1}, false},
		"too many slots":       {"bert-node-0-0.bert slots=99999999\n", TrainerHosts{}, true},
		"a host without slots": {"bert-node-0-0.bert\n", TrainerHosts{Slots: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseTrainerHosts("bert", test.text)
			if (err != nil) != test.wantErr {
				t.Fatalf("error %v, want one: %t", err, test.wantErr)
			}
			if err == nil && got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestWhichJobSetsRun(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*jobset.JobSet)
		want   bool
	}{
		"of Trainer, for Trireme":      {func(*jobset.JobSet) {}, true},
		"without a controller":         {func(set *jobset.JobSet) { set.OwnerReferences = nil }, false},
		"for JobSet's own controller":  {func(set *jobset.JobSet) { set.Spec.ManagedBy = nil }, false},
		"for another controller":       {func(set *jobset.JobSet) { set.Spec.ManagedBy = new("example.com/other") }, false},
		"of a TrainJob of Trireme":     {func(set *jobset.JobSet) { set.OwnerReferences[0].APIVersion = "kubeflow.org/v2alpha1" }, false},
		"owned, but not controlled":    {func(set *jobset.JobSet) { set.OwnerReferences[0].Controller = nil }, false},
		"of another kind of Trainer's": {func(set *jobset.JobSet) { set.OwnerReferences[0].Kind = "TrainingRuntime" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := RunsJobSet(trainerSet(test.change)); got != test.want {
				t.Errorf("Trireme runs it: %t, want %t", got, test.want)
			}
		})
	}
}

// refusedSettings are all settings that Trireme cannot honor, by the path that the
// message begins with.
var refusedSettings = map[string]func(*jobset.JobSet){
	"spec.managedBy: Trireme only runs JobSets of runtimes with mlPolicy.mpi": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Volumes = nil
	},
	"spec.network.enableDNSHostnames":       func(set *jobset.JobSet) { set.Spec.Network.EnableDNSHostnames = new(false) },
	"spec.network.publishNotReadyAddresses": func(set *jobset.JobSet) { set.Spec.Network.PublishNotReadyAddresses = new(false) },
	"spec.successPolicy": func(set *jobset.JobSet) {
		set.Spec.SuccessPolicy = &jobset.SuccessPolicy{Operator: jobset.OperatorAll}
	},
	"spec.failurePolicy.rules": func(set *jobset.JobSet) {
		set.Spec.FailurePolicy = &jobset.FailurePolicy{Rules: []jobset.FailurePolicyRule{{Action: jobset.FailJobSet}}}
	},
	"spec.failurePolicy.restartStrategy": func(set *jobset.JobSet) {
		set.Spec.FailurePolicy = &jobset.FailurePolicy{RestartStrategy: jobset.InPlaceRestart}
	},
	"spec.startupPolicy": func(set *jobset.JobSet) {
		set.Spec.StartupPolicy.StartupPolicyOrder = jobset.InOrder
		slices.Reverse(set.Spec.ReplicatedJobs)
	},
	"metadata.annotations": func(set *jobset.JobSet) {
		set.Annotations = map[string]string{training.AnnotationExclusiveTopology: "rack"}
	},
	"spec.replicatedJobs[1].template.metadata.annotations": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[1].Template.Annotations = map[string]string{"alpha.jobset.sigs.k8s.io/node-selector": "rack"}
	},
	"spec.replicatedJobs[0].name":     func(set *jobset.JobSet) { set.Spec.ReplicatedJobs[0].Name = "evaluator" },
	"spec.replicatedJobs[0].replicas": func(set *jobset.JobSet) { set.Spec.ReplicatedJobs[0].Replicas = 2 },
	"spec.replicatedJobs[1].dependsOn": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[1].DependsOn[0].Status = jobset.DependencyComplete
	},
	"spec.replicatedJobs[1].template.spec.parallelism": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[1].Template.Spec.Parallelism, set.Spec.ReplicatedJobs[1].Template.Spec.Completions = new(int32(2)), new(int32(2))
	},
	"spec.replicatedJobs[0].template.spec.parallelism: must be at most 100": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.Parallelism, set.Spec.ReplicatedJobs[0].Template.Spec.Completions = new(int32(101)), new(int32(101))
	},
	"spec.replicatedJobs[0].template.spec.completions": func(set *jobset.JobSet) { set.Spec.ReplicatedJobs[0].Template.Spec.Completions = new(int32(9)) },
	"spec.replicatedJobs[0].template.spec.completionMode": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.CompletionMode = new(batchv1.NonIndexedCompletion)
	},
	"spec.replicatedJobs[0].template.spec.podFailurePolicy": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{}
	},
	"spec.replicatedJobs[0].template.spec.successPolicy": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.SuccessPolicy = &batchv1.SuccessPolicy{}
	},
	"spec.replicatedJobs[0].template.spec.backoffLimitPerIndex": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimitPerIndex = new(int32(1))
	},
	"spec.replicatedJobs[0].template.spec.maxFailedIndexes": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.MaxFailedIndexes = new(int32(1))
	},
	"spec.replicatedJobs[0].template.spec.selector": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.Selector = &metav1.LabelSelector{}
	},
	"spec.replicatedJobs[0].template.spec.manualSelector": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.ManualSelector = new(true)
	},
	"spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.TTLSecondsAfterFinished = new(int32(1))
	},
	"spec.replicatedJobs[0].template.spec.suspend": func(set *jobset.JobSet) { set.Spec.ReplicatedJobs[0].Template.Spec.Suspend = new(true) },
	"spec.replicatedJobs[0].template.spec.podReplacementPolicy": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.PodReplacementPolicy = new(batchv1.TerminatingOrFailed)
	},
	"spec.replicatedJobs[0].template.spec.managedBy": func(set *jobset.JobSet) {
		set.Spec.ReplicatedJobs[0].Template.Spec.ManagedBy = new("example.com/other")
	},
	"spec.replicatedJobs[0].template.spec.backoffLimit": func(set *jobset.JobSet) {
		withInitializers(set)
		set.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = new(int32(1))
	},
	"spec.replicatedJobs[2].dependsOn": func(set *jobset.JobSet) {
		withInitializers(set)
		set.Spec.ReplicatedJobs[2].DependsOn[0].Status = jobset.DependencyReady
	},
	"spec.replicatedJobs[1].dependsOn: is not supported for initializers": func(set *jobset.JobSet) {
		withInitializers(set)
		set.Spec.ReplicatedJobs[1].DependsOn = []jobset.DependsOn{{Name: "dataset-initializer", Status: jobset.DependencyComplete}}
	},
}

func TestRefusedSettings(t *testing.T) {
	for want, change := range refusedSettings {
		t.Run(want, func(t *testing.T) {
			got := FromJobSet(trainerSet(change), TrainerHosts{Slots: 1}, testDefaults()).Unsupported
			if len(got) != 1 || !strings.HasPrefix(got[0], want) {
				t.Errorf("unsupported are %q, want one that begins with %q", got, want)
			}
		})
	}
}

func TestAcceptedSettings(t *testing.T) {
	for name, change := range map[string]func(*jobset.JobSet){
		"with initializers":       withInitializers,
		"nodes are started first": func(set *jobset.JobSet) { set.Spec.StartupPolicy.StartupPolicyOrder = jobset.InOrder },
		"initializers must succeed, too": func(set *jobset.JobSet) {
			withInitializers(set)
			set.Spec.SuccessPolicy.TargetReplicatedJobs = []string{"dataset-initializer", "launcher"}
		},
		"a launcher alone": func(set *jobset.JobSet) {
			set.Spec.ReplicatedJobs, set.Spec.SuccessPolicy = set.Spec.ReplicatedJobs[1:], nil
			set.Spec.ReplicatedJobs[0].DependsOn = nil
		},
		"no defaults of JobSet's webhook": func(set *jobset.JobSet) { set.Spec.Network, set.Spec.StartupPolicy = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			if got := FromJobSet(trainerSet(change), TrainerHosts{Slots: 1}, testDefaults()).Unsupported; len(got) > 0 {
				t.Errorf("unsupported: %q", got)
			}
		})
	}
}

func TestCoordinatorOfJobSet(t *testing.T) {
	set := trainerSet(func(set *jobset.JobSet) {
		set.Spec.Coordinator = &jobset.Coordinator{ReplicatedJob: "launcher"}
		set.Spec.Network.Subdomain = "mesh"
	})
	if got := FromJobSet(set, TrainerHosts{}, testDefaults()).Set; got.Coordinator != "bert-launcher-0-0.mesh" || got.Subdomain != "mesh" {
		t.Errorf("the set is %+v", got)
	}
}

// honored are the fields that have an effect, or no meaning for MPI. A field that a new
// version adds must be honored or refused, too.
var honored = map[reflect.Type][]string{
	reflect.TypeFor[jobset.JobSetSpec]():        {"ReplicatedJobs", "Network", "SuccessPolicy", "FailurePolicy", "StartupPolicy", "Suspend", "Coordinator", "ManagedBy", "TTLSecondsAfterFinished", "VolumeClaimPolicies"},
	reflect.TypeFor[jobset.ReplicatedJob]():     {"Name", "GroupName", "Template", "Replicas", "DependsOn"},
	reflect.TypeFor[jobset.Network]():           {"EnableDNSHostnames", "Subdomain", "PublishNotReadyAddresses"},
	reflect.TypeFor[jobset.FailurePolicy]():     {"MaxRestarts", "RestartStrategy", "Rules"},
	reflect.TypeFor[jobset.SuccessPolicy]():     {"Operator", "TargetReplicatedJobs"},
	reflect.TypeFor[jobset.VolumeClaimPolicy](): {"Templates", "RetentionPolicy"},
	reflect.TypeFor[batchv1.JobSpec](): {"Parallelism", "Completions", "ActiveDeadlineSeconds", "PodFailurePolicy", "SuccessPolicy", "BackoffLimit", "BackoffLimitPerIndex",
		"MaxFailedIndexes", "Selector", "ManualSelector", "Template", "TTLSecondsAfterFinished", "CompletionMode", "Suspend", "PodReplacementPolicy", "ManagedBy"},
}

func TestEveryFieldOfJobSetIsConsidered(t *testing.T) {
	for kind, fields := range honored {
		for i := range kind.NumField() {
			if name := kind.Field(i).Name; !slices.Contains(fields, name) {
				t.Errorf("%s.%s: honor it in from_jobset.go, or refuse it in unsupported.go", kind.Name(), name)
			}
		}
	}
}

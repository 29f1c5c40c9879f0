// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// changed is a job whose image, or what its workers ask for, is another.
func changed(object client.Object, image string, cpu string) client.Object {
	ask := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("64Mi")}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.Trainer.Image, object.Spec.Trainer.ResourcesPerNode.Requests = image, ask
	case *v2beta1.MPIJob:
		for role, replica := range object.Spec.MPIReplicaSpecs {
			container := &replica.Template.Spec.Containers[0]
			if container.Image = image; role == v2beta1.MPIReplicaTypeWorker {
				container.Resources.Requests = ask
			}
		}
	}
	return object
}

func (job *theJob) kindName() string {
	if _, isMPIJob := job.object.(*v2beta1.MPIJob); isMPIJob {
		return "mpijob"
	}
	return "trainjob"
}

var localImage = testImage("openmpi:5")

func quotaOfPods(namespace, pods string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)},
	}}
}

// createQuota waits until the quota counts: until its controller has seen it, pods are
// not held against it.
func createQuota(t *testing.T, api client.Client, quota *corev1.ResourceQuota) {
	t.Helper()
	if err := api.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the quota counts", func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		if len(quota.Status.Hard) == 0 {
			return errors.New("it has no status")
		}
		return nil
	})
}

func TestDiagnoseAJobThatRuns(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, waiting, func(t *testing.T, object client.Object) {
		api, namespace := newNamespace(t)
		// Policies are not enforced here, but found.
		closed := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "deny-all"}, Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		}}
		job := submitTo(t, api, namespace, object)
		// The launcher reaches its workers before the kubelet has asked whether they are ready.
		job.until("it runs and its workers are ready", time.Minute, func(progress training.Progress) bool {
			return progress.ReadyWorkers == "2/2" && slices.ContainsFunc(progress.Timeline, func(entry training.TimelineEntry) bool {
				return entry.Step == training.StepWorkersReached
			})
		})
		stdout, _ := odh(t, 0, namespace, "diagnose", job.kindName()+"/train")
		contains(t, stdout, "train in namespace "+namespace+": Running, workers 2/2", "No problems found.")
		if err := api.Create(t.Context(), closed); err != nil {
			t.Fatal(err)
		}
		stdout, _ = odh(t, 0, namespace, job.kindName(), "diagnose", "train")
		contains(t, stdout, "Notes:", "NetworkPolicies block traffic between the job's pods", "deny-all", "port 2222", "does not enforce them", "block DNS")
	})
}

func TestDiagnoseAWrongImage(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		job := submit(t, changed(object, "trireme.local/nothing:1", "10m"))
		job.until("its pods say so", time.Minute, func(progress training.Progress) bool {
			return len(progress.WorkerPodStatuses) > 0 && strings.Contains(progress.WorkerPodStatuses[0].Reason, "Pull")
		})
		stdout, _ := odh(t, 1, job.namespace, "diagnose", "train")
		contains(t, stdout, "Pending", "1. [certain] ", "cannot pull image trireme.local/nothing:1", "Fix: Correct the image's name")
		stdout, _ = odh(t, 1, job.namespace, "diagnose", "train", "-o", "json")
		var told struct {
			Hindered bool
			Findings []struct{ Rank, Check, Fix string }
		}
		if err := json.Unmarshal([]byte(stdout), &told); err != nil || !told.Hindered || len(told.Findings) == 0 || told.Findings[0].Check != "Image" || told.Findings[0].Rank != "certain" {
			t.Errorf("%v:\n%s", err, stdout)
		}
	})
}

func TestDiagnoseAJobThatIsTooLarge(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		job := submit(t, changed(object, localImage, "1000"))
		job.until("its pods are there", time.Minute, func(progress training.Progress) bool { return len(progress.WorkerPodStatuses) == 2 })
		stdout, _ := odh(t, 1, job.namespace, "diagnose", "train")
		contains(t, stdout, "[certain] Too few nodes fit the workers", "0 of ", "can run a worker, which requests 1k cpu", "too small: cpu", "Fix: Request no more for a worker than one node has")
	})
}

// A quota that came after the job was accepted.
func TestDiagnoseAJobOverQuota(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		setSuspend(true)(object)
		job := submit(t, object)
		job.until("it is suspended", time.Minute, func(training.Progress) bool { _, is := conditionsOf(job.object)["Suspended"]; return is })
		stdout, _ := odh(t, 1, job.namespace, "diagnose", "train")
		contains(t, stdout, "[certain] The job is suspended", `"suspend":false`)
		// A job that is suspended is not held against the quota; when it is resumed
		// there is no room for all of it.
		createQuota(t, job.client, quotaOfPods(job.namespace, "1"))
		job.change(setSuspend(false))
		job.until("it waits for the quota", time.Minute, func(progress training.Progress) bool {
			return progress.QuotaWait != nil && progress.QuotaWait.Name == "small"
		})
		ended := job.fails(training.FailureResourceQuota, "exceeded quota: small", "kubectl describe quota")
		t.Log(ended.FailureMessage)
		stdout, _ = odh(t, 6, job.namespace, "diagnose", "train")
		contains(t, stdout, "[cause] The job failed: ResourceQuotaExceeded", "Fix: kubectl describe resourcequota", "[likely] The namespace's quota is too small", "quota small has")
	})
}

// Whoever may only look is told what was not looked at.
func TestDiagnoseWithFewRights(t *testing.T) {
	t.Parallel()
	job := submit(t, changed(implementations[1].trainJob(2, allreduce), "trireme.local/nothing:1", "10m"))
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.namespace, Name: "alice"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trainjob-viewer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
	}
	if err := job.client.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	job.until("its pods say so", time.Minute, func(progress training.Progress) bool {
		return len(progress.WorkerPodStatuses) > 0 && strings.Contains(progress.WorkerPodStatuses[0].Reason, "Pull")
	})
	eventually.Succeeds(t, "alice may look", func() error {
		_, err := shell("bin/cluster kubectl auth can-i get trainjobs --as alice -n " + job.namespace)
		return err
	})
	stdout, _ := odh(t, 1, job.namespace, "diagnose", "trainjob/train", "--as", "alice")
	contains(t, stdout, "cannot pull image trireme.local/nothing:1", "Not known:", "NetworkPolicies: may not list networkpolicies", "The operator: may not get deployment")
	odh(t, 4, job.namespace, "diagnose", "trainjob/train", "--as", "mallory")
	odh(t, 3, job.namespace, "diagnose", "nothing")
}

// fileOf is a job as a file.
func fileOf(t *testing.T, object client.Object) string {
	t.Helper()
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.TypeMeta = metav1.TypeMeta{APIVersion: v2alpha1.GroupVersion.String(), Kind: "TrainJob"}
		if object.Spec.RuntimeRef.Name == "" {
			object.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "mpi-openmpi-cpu"}
		}
	case *v2beta1.MPIJob:
		object.TypeMeta = metav1.TypeMeta{APIVersion: v2beta1.GroupVersion.String(), Kind: "MPIJob"}
	}
	object.SetName("train")
	content, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// untilOnANode waits until a kubelet has told of an image, which it does a while after
// the image is there.
func untilOnANode(t *testing.T, api client.Client, image string) {
	t.Helper()
	eventually.Succeeds(t, "a node has "+image, func() error {
		var nodes corev1.NodeList
		if err := api.List(t.Context(), &nodes); err != nil {
			return err
		}
		for _, node := range nodes.Items {
			if slices.ContainsFunc(node.Status.Images, func(there corev1.ContainerImage) bool { return slices.Contains(there.Names, image) }) {
				return nil
			}
		}
		return fmt.Errorf("%d nodes have not", len(nodes.Items))
	})
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	bothFail(t, 2, allreduce, func(t *testing.T, object client.Object) {
		api, namespace := newNamespace(t)
		file := fileOf(t, object)
		untilOnANode(t, api, localImage)
		stdout, _ := odh(t, 0, namespace, "preflight", "-f", file)
		contains(t, stdout, "train in namespace "+namespace+": 16/16 checks passed", "ok         Permissions", "ok         Dry run", "ok         Image", "ok         Nodes")
		stdout, _ = odh(t, 4, namespace, "preflight", "-f", file, "--as", "mallory")
		contains(t, stdout, "fail       Permissions", "You may not create")

		createQuota(t, api, quotaOfPods(namespace, "2"))
		eventually.Succeeds(t, "admission knows the quota", func() error {
			_, err := shell("! bin/cluster kubectl create --dry-run=server -n " + namespace + " -f " + file + " >/dev/null 2>&1")
			return err
		})
		stdout, _ = odh(t, 5, namespace, "preflight", "-f", file)
		contains(t, stdout, "fail       Quota", "quota small has 2 pods available")

		bad := fileOf(t, changed(object, "trireme.local/nothing:1", "1000"))
		stdout, _ = odh(t, 1, namespace, "preflight", "-f", bad)
		contains(t, stdout, "fail       Quota", "not known  Image", "no node has it yet", "fail       Nodes", "too small: cpu")
		var jobs v2beta1.MPIJobList
		var trainJobs v2alpha1.TrainJobList
		if api.List(t.Context(), &jobs, client.InNamespace(namespace)) != nil || api.List(t.Context(), &trainJobs, client.InNamespace(namespace)) != nil || len(jobs.Items)+len(trainJobs.Items) > 0 {
			t.Error("preflight has created a job")
		}
	})
	_, namespace := newNamespace(t)
	stdout, _ := odh(t, 0, namespace, "preflight")
	contains(t, stdout, "Namespace "+namespace+": 7/7 checks passed")
	stdout, _ = odh(t, 1, "no-such-namespace", "preflight")
	contains(t, stdout, "Namespace no-such-namespace is missing")
}

func TestRuntimes(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	stdout, _ := odh(t, 0, namespace, "runtime", "validate", "charts/trireme/files/runtimes/mpi-openmpi-cpu.yaml", "config/samples/trainingruntime.yaml")
	contains(t, stdout, "ClusterTrainingRuntime mpi-openmpi-cpu: ok", "0 errors")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("apiVersion: kubeflow.org/v2alpha1\nkind: TrainingRuntime\nmetadata:\n  name: a\nspec:\n  slots: 4\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, _ = odh(t, 1, namespace, "runtime", "validate", broken)
	contains(t, stdout, "line 6: spec.slots: unknown field", "Runtime must define launcher and worker jobs")

	if err := api.Create(t.Context(), runtimeFor(namespace, v2alpha1.MPIImplementationMPICH)); err != nil {
		t.Fatal(err)
	}
	stdout, _ = odh(t, 0, namespace, "runtime", "list")
	contains(t, stdout, "mpi-openmpi-cpu", "cluster", "OpenMPI", "runtime", "namespace "+namespace, "MPICH")

	small := []string{"--cpu", "10m", "--memory", "64Mi"}
	for runtime, image := range map[string]string{"mpi-openmpi-cpu": localImage, "mpi-intel-cpu": testImage("intelmpi:2021"), "runtime": testImage("mpich:4")} {
		stdout, stderr := odh(t, 0, namespace, append([]string{"runtime", "test", runtime, "--image", image}, small...)...)
		contains(t, stdout, "ok    pods scheduled", "ok    image pulled", "ok    workers reached", "ok    ranks started", "ok    every rank answered")
		contains(t, stderr, "The runtime works.")
	}
	stdout, _ = odh(t, 7, namespace, append([]string{"runtime", "test", "mpi-openmpi-cpu", "--image", "trireme.local/nothing:1", "--timeout", "60s"}, small...)...)
	contains(t, stdout, "ok    pods scheduled", "fail  image pulled", "trireme.local/nothing:1")
	odh(t, 3, namespace, "runtime", "test", "no-such-runtime", "--image", localImage)
	var left v2alpha1.TrainJobList
	if err := api.List(t.Context(), &left, client.InNamespace(namespace)); err != nil || len(left.Items) > 0 {
		t.Errorf("%d jobs are left, %v", len(left.Items), err)
	}
	wantNoPods(t, namespace)
}

// Ctrl-C while a runtime is tried out leaves nothing behind.
func TestRuntimeTestIsInterrupted(t *testing.T) {
	t.Parallel()
	api, namespace := newNamespace(t)
	command, _, stderr := odhCommand(t, namespace, "runtime", "test", "mpi-openmpi-cpu", "--image", "trireme.local/nothing:1", "--cpu", "10m", "--memory", "64Mi")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	jobs := func() int {
		var found v2alpha1.TrainJobList
		if err := api.List(t.Context(), &found, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		return len(found.Items)
	}
	eventually.Succeeds(t, "the job is there", func() error {
		if jobs() == 0 {
			return os.ErrNotExist
		}
		return nil
	})
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 130 || jobs() != 0 {
		t.Errorf("exit code %d, %d jobs are left: %s", code, jobs(), stderr)
	}
}

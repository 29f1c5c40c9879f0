// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

func TestPodLogsAndExec(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	create(t, ns, newPod("talker", "echo from the log; sleep 600"))
	awaitPhase(t, ns, "talker", corev1.PodRunning)
	eventually(t, time.Minute, func() error {
		if got := logs(t, ns, "talker"); got != "from the log\n" {
			return fmt.Errorf("log is %q", got)
		}
		return nil
	})
	if got := execute(t, ns, "talker", "id", "-u"); got != "1000680000\n" {
		t.Errorf("exec id -u printed %q", got)
	}
}

func TestMPIRunsInAPod(t *testing.T) {
	t.Parallel()
	ns := namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	// Five times, because an MPI that hangs does not hang every time.
	const script = `for i in 1 2 3 4 5; do mpirun -n 2 $FLAGS python3 -c '
import numpy
from mpi4py import MPI
world = MPI.COMM_WORLD
total = numpy.zeros(1000)
world.Allreduce(numpy.full(1000, world.rank + 1.0), total)
print("sum", total.sum(), MPI.Get_library_version().split(chr(0))[0])'; done`
	for image, library := range map[string]string{
		"openmpi:4": "Open MPI v4.1", "openmpi:5": "Open MPI v5.0", "mpich:4": "MPICH Version:", "intelmpi:2021": "Intel(R) MPI Library 2021",
	} {
		t.Run(image, func(t *testing.T) {
			name := strings.NewReplacer(":", "-").Replace(image)
			got := succeed(t, ns, newPod(name, script, func(pod *corev1.Pod) {
				container := &pod.Spec.Containers[0]
				container.Image = "trireme.local/" + image
				if strings.HasPrefix(image, "openmpi") {
					container.Env = []corev1.EnvVar{{Name: "FLAGS", Value: "--oversubscribe"}}
				}
			}))
			if count := strings.Count(got, "sum 3000.0 "+library); count != 10 {
				t.Errorf("the sum was printed %d times by %s, not 10 times:\n%s", count, library, got)
			}
		})
	}
}

func TestDNSOfAHeadlessService(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	createService(t, ns, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "gang"},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "worker-0"}},
	})
	create(t, ns, newPod("worker-0", "sleep 600", func(pod *corev1.Pod) {
		pod.Spec.Hostname, pod.Spec.Subdomain = "worker-0", "gang"
	}))
	worker := awaitPhase(t, ns, "worker-0", corev1.PodRunning)
	script := `for i in $(seq 200); do getent hosts worker-0.gang && exit 0; sleep 0.2; done; exit 1`
	got := succeed(t, ns, newPod("asker", script))
	if !strings.HasPrefix(got, worker.Status.PodIP+" ") {
		t.Errorf("worker-0.gang resolves to %q, the pod has %s", got, worker.Status.PodIP)
	}
	missing := succeed(t, ns, newPod("asker-in-vain", `getent hosts nobody.gang; echo "exit $?"; getent hosts example.com; echo "exit $?"`))
	if want := "exit 2\nexit 2\n"; missing != want {
		t.Errorf("names that do not exist: got %q, want %q", missing, want)
	}
}

func TestClusterIPService(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	create(t, ns, newPod("web", `cd /tmp && echo hello > index.html && exec python3 -m http.server 8080`))
	createService(t, ns, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "front"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	})
	awaitPhase(t, ns, "web", corev1.PodRunning)
	fetch := `import urllib.request as u, time
for i in range(200):
    try:
        print(u.urlopen("http://front/", timeout=2).read().decode(), end=""); break
    except OSError as e:
        last = e; time.sleep(0.2)
else:
    raise last`
	if got := succeed(t, ns, newPod("client", "python3 -c '"+fetch+"'")); got != "hello\n" {
		t.Errorf("another pod read %q through the Service", got)
	}
	// A pod that reaches itself through its own Service needs hairpin NAT.
	if got := execute(t, ns, "web", "python3", "-c", fetch); got != "hello\n" {
		t.Errorf("the pod itself read %q through the Service", got)
	}
	service, err := cluster.client.CoreV1().Services(ns).Get(t.Context(), "front", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The machine, too, must reach Services: webhooks under development run there.
	response, err := (&http.Client{Timeout: time.Minute}).Get("http://" + service.Spec.ClusterIP + "/")
	if err != nil {
		t.Fatalf("the machine does not reach the Service: %v", err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "hello\n" {
		t.Errorf("the machine read %q through the Service", body)
	}
}

func createService(t *testing.T, namespace string, service *corev1.Service) {
	t.Helper()
	if _, err := cluster.client.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryLimitIsReportedAsOOMKilled(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	create(t, ns, newPod("glutton", `exec python3 -c 'x = bytearray(512 << 20)'`, func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	}))
	pod := awaitPhase(t, ns, "glutton", corev1.PodFailed)
	ended := pod.Status.ContainerStatuses[0].State.Terminated
	if ended == nil || ended.Reason != "OOMKilled" || ended.ExitCode != 137 {
		t.Errorf("want OOMKilled with exit code 137, got %+v", ended)
	}
}

func TestMissingImageIsReportedAsImagePullBackOff(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	create(t, ns, newPod("lost", "true", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "trireme.local/no-such-image:1" }))
	eventually(t, time.Minute, func() error {
		statuses := get(t, ns, "lost").Status.ContainerStatuses
		if len(statuses) == 0 || statuses[0].State.Waiting == nil || statuses[0].State.Waiting.Reason != "ImagePullBackOff" {
			return fmt.Errorf("statuses are %+v", statuses)
		}
		return nil
	})
}

func TestResourceQuotaRefuses(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	_, err := cluster.client.CoreV1().ResourceQuotas(ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "one-pod"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The quota counts from when its controller has seen it.
	eventually(t, time.Minute, func() error {
		quota, err := cluster.client.CoreV1().ResourceQuotas(ns).Get(t.Context(), "one-pod", metav1.GetOptions{})
		if err == nil && quota.Status.Hard == nil {
			err = fmt.Errorf("quota has no status")
		}
		return err
	})
	create(t, ns, newPod("first", "sleep 600"))
	_, err = cluster.client.CoreV1().Pods(ns).Create(t.Context(), newPod("second", "sleep 600"), metav1.CreateOptions{})
	refused(t, err, "exceeded quota: one-pod")
}

func TestPodSecurityRestrictedRefuses(t *testing.T) {
	t.Parallel()
	ns := namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	pods := cluster.client.CoreV1().Pods(ns)
	_, err := pods.Create(t.Context(), newPod("privileged", "true", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	}), metav1.CreateOptions{})
	refused(t, err, `violates PodSecurity "restricted`)
	create(t, ns, newPod("modest", "true"))
	awaitPhase(t, ns, "modest", corev1.PodSucceeded)
}

func TestOwnerReferencesNeedRightsOnTheOwner(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	owner, err := cluster.client.CoreV1().ConfigMaps(ns).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := impersonate(t, ns, "system:serviceaccount:"+ns+":default", "create", "secrets")
	_, err = user.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: "owned",
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true),
		}},
	}}, metav1.CreateOptions{})
	refused(t, err, "cannot set blockOwnerDeletion")
}

func TestAnonymousIsRefused(t *testing.T) {
	t.Parallel()
	config := rest.AnonymousClientConfig(cluster.config)
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	api, kubelet := cluster.config.Host, strings.Replace(cluster.config.Host, ":6443", ":10250", 1)
	for _, path := range []string{api + "/version", api + "/healthz", api + "/api", kubelet + "/pods", kubelet + "/healthz"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s answers an anonymous caller with %s", path, response.Status)
		}
	}
}

// TestRightsAreChecked: a user without rights gets nothing, and a node only
// what its own pods need.
func TestRightsAreChecked(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	_, err := cluster.client.CoreV1().Secrets(ns).Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "private"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := impersonate(t, ns, "somebody", "list", "pods")
	_, err = user.CoreV1().Secrets(ns).Get(t.Context(), "private", metav1.GetOptions{})
	refused(t, err, `User "somebody" cannot get resource "secrets"`)
	node := rest.CopyConfig(cluster.config)
	node.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + clusterName, Groups: []string{"system:nodes"}}
	client, err := kubernetes.NewForConfig(node)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Secrets(ns).Get(t.Context(), "private", metav1.GetOptions{})
	refused(t, err, "no relationship found between node")
}

func TestAdministratorsKubeconfigIsPrivate(t *testing.T) {
	t.Parallel()
	info, err := os.Stat(filepath.Join(cluster.data(), "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %o", info.Mode().Perm())
	}
}

var podGroups = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "podgroups"}

// TestGangIsPlacedAllOrNothing asks for more GPUs than the fake nodes have:
// not one pod may be placed, until there is room for all.
func TestGangIsPlacedAllOrNothing(t *testing.T) {
	ns := namespace(t, nil)
	const gang = fakeNodes + 1
	_, err := cluster.dynamic.Resource(podGroups).Namespace(ns).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "scheduling.k8s.io/v1alpha2",
		"kind":       "PodGroup",
		"metadata":   map[string]any{"name": "gang"},
		"spec":       map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(gang)}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range gang {
		create(t, ns, newPod(fmt.Sprintf("rank-%d", i), "true", onFakeNode(gpusPerNode), func(pod *corev1.Pod) {
			pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To("gang")}
		}))
	}
	// A lone pod of the same size is placed, so the scheduler works and there
	// is room for eight, only not for nine.
	create(t, ns, newPod("alone", "true", onFakeNode(gpusPerNode)))
	awaitPhase(t, ns, "alone", corev1.PodRunning)
	if placed := placedPods(t, ns, "rank-"); placed != 0 {
		t.Fatalf("%d of a gang of %d were placed although there is no room for all", placed, gang)
	}
	if err := cluster.client.CoreV1().Pods(ns).Delete(t.Context(), "alone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if output := cluster.must(t, "up", "--fake-nodes", fmt.Sprint(gang)); !strings.Contains(output, fmt.Sprintf("%d with %d GPUs each", gang, gpusPerNode)) {
		t.Errorf("the nodes' GPUs were forgotten:\n%s", output)
	}
	t.Cleanup(func() {
		_, err := cluster.run(context.Background(), "up", "--fake-nodes", fmt.Sprint(fakeNodes), "--fake-node-gpus", fmt.Sprint(gpusPerNode))
		if err != nil {
			t.Error(err)
		}
	})
	eventually(t, time.Minute, func() error {
		if placed := placedPods(t, ns, "rank-"); placed != gang {
			return fmt.Errorf("%d of %d placed", placed, gang)
		}
		return nil
	})
}

func onFakeNode(gpus int) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}}
		pod.Spec.NodeSelector = map[string]string{"trireme.local/fake-node": "true"}
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
}

func placedPods(t *testing.T, namespace, prefix string) (placed int) {
	t.Helper()
	pods, err := cluster.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		if strings.HasPrefix(pod.Name, prefix) && pod.Spec.NodeName != "" {
			placed++
		}
	}
	return placed
}

func TestSimulatedPodEndsWhenItSays(t *testing.T) {
	ns := namespace(t, nil)
	create(t, ns, newPod("brief", "true", onFakeNode(1), func(pod *corev1.Pod) {
		pod.Annotations = map[string]string{"trireme.local/simulated-run": "1s"}
	}))
	awaitPhase(t, ns, "brief", corev1.PodSucceeded)
}

var jobSets = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}

func TestJobSetCompletes(t *testing.T) {
	t.Parallel()
	runJobSet(t, namespace(t, nil))
}

func runJobSet(t *testing.T, ns string) {
	t.Helper()
	template := newPod("", `getent hosts "$(hostname)" && test "$JOB_COMPLETION_INDEX" -lt 2`)
	_, err := cluster.dynamic.Resource(jobSets).Namespace(ns).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2",
		"kind":       "JobSet",
		"metadata":   map[string]any{"name": "small"},
		"spec": map[string]any{"replicatedJobs": []any{map[string]any{
			"name": "worker", "replicas": int64(1),
			"template": map[string]any{"spec": map[string]any{
				"parallelism": int64(2), "completions": int64(2), "completionMode": "Indexed", "backoffLimit": int64(0),
				"template": map[string]any{"spec": asMap(t, template.Spec)},
			}},
		}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		jobSet, err := cluster.dynamic.Resource(jobSets).Namespace(ns).Get(t.Context(), "small", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !conditionTrue(t, jobSet, "Completed") {
			return fmt.Errorf("status is %v", jobSet.Object["status"])
		}
		return nil
	})
}

func TestJobSetsWebhookAnswers(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	_, err := cluster.dynamic.Resource(jobSets).Namespace(ns).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2",
		"kind":       "JobSet",
		"metadata":   map[string]any{"name": strings.Repeat("long", 15)},
		"spec": map[string]any{"replicatedJobs": []any{map[string]any{
			"name": "worker", "replicas": int64(1), "template": map[string]any{"spec": map[string]any{
				"template": map[string]any{"spec": asMap(t, newPod("", "true").Spec)},
			}},
		}}},
	}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `admission webhook "vjobset.kb.io" denied`) {
		t.Errorf("want a refusal by JobSet's webhook, got: %v", err)
	}
}

func TestVolumeIsWrittenByOnePodAndReadByAnother(t *testing.T) {
	t.Parallel()
	ns := namespace(t, nil)
	createClaim(t, ns, "data")
	mounted := withClaim("data")
	succeed(t, ns, newPod("writer", "echo kept > /data/file", mounted))
	otherUser := func(pod *corev1.Pod) { pod.Spec.SecurityContext.RunAsUser = ptr.To[int64](1000700000) }
	if got := succeed(t, ns, newPod("reader", "cat /data/file && touch /data/another", mounted, otherUser)); got != "kept\n" {
		t.Errorf("the second pod read %q", got)
	}
	claim, err := cluster.client.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(cluster.data(), "volumes", claim.Spec.VolumeName)
	if _, err := os.Stat(directory); err != nil {
		t.Fatalf("the volume is no directory of the machine: %v", err)
	}
	if err := cluster.client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, func() error {
		if _, err := os.Stat(directory); !os.IsNotExist(err) {
			return fmt.Errorf("%s is still there after its claim was deleted (%v)", directory, err)
		}
		return nil
	})
}

func createClaim(t *testing.T, namespace, name string) {
	t.Helper()
	_, err := cluster.client.CoreV1().PersistentVolumeClaims(namespace).Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// withClaim mounts a claim at /data.
func withClaim(name string) podOption {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	}
}

func TestImageVolume(t *testing.T) {
	t.Parallel()
	ns := namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	const reference = "trireme.local/pause:1"
	got := succeed(t, ns, newPod("mounter", "test -x /tool/pause && echo executable; touch /tool/x 2>&1 | grep -o 'Read-only file system'", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "tool", VolumeSource: corev1.VolumeSource{
			Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: corev1.PullIfNotPresent},
		}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tool", MountPath: "/tool"}}
	}))
	if want := "executable\nRead-only file system\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestImageOfAStaticBinary is the way of every later program: build it, load
// it by one command, run it.
func TestImageOfAStaticBinary(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "greet.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() { println(\"greetings\") }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "greet")
	build(t, source, binary)
	cluster.must(t, "image", "load", binary, "--as", "trireme.local/greet:dev")
	if listed := cluster.must(t, "image", "list"); !strings.Contains(listed, "trireme.local/greet:dev\n") {
		t.Errorf("not in the list of images:\n%s", listed)
	}
	ns := namespace(t, nil)
	got := succeed(t, ns, newPod("greeter", "", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = "trireme.local/greet:dev", nil
	}))
	if got != "greetings\n" {
		t.Errorf("it printed %q", got)
	}
}

func conditionTrue(t *testing.T, object *unstructured.Unstructured, kind string) bool {
	t.Helper()
	raw, _, err := unstructured.NestedSlice(object.Object, "status", "conditions")
	if err != nil {
		t.Fatal(err)
	}
	var conditions []metav1.Condition
	for _, entry := range raw {
		condition := entry.(map[string]any)
		conditions = append(conditions, metav1.Condition{
			Type: condition["type"].(string), Status: metav1.ConditionStatus(condition["status"].(string)),
		})
	}
	return meta.IsStatusConditionTrue(conditions, kind)
}

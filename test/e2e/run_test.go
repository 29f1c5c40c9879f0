// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"crypto/rand"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	"github.com/trireme-mpi/trireme/internal/operator/sshkey"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// connection is how the test's cluster is reached.
var connection = sync.OnceValues(func() (*rest.Config, error) {
	path, err := shell("eval \"$(bin/cluster env)\" && printf %s \"$KUBECONFIG\"")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, path)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 200, 200
	return config, nil
})

// connect is a client of the test's cluster.
var connect = sync.OnceValues(func() (*kubernetes.Clientset, error) {
	config, err := connection()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
})

// run is one run of a job's pods, without an operator: the pods are those of the
// plan, and the test does what the operator will do around them.
type run struct {
	t         *testing.T
	client    *kubernetes.Clientset
	namespace string
	job       *job.Job
	delivery  plan.Method
	hosts     []string
}

// newRun makes everything but the pods, in a namespace in which PodSecurity's level is
// restricted.
func newRun(t *testing.T, mpiJob *v2beta1.MPIJob) *run {
	t.Helper()
	return newRunAt(t, "restricted", mpiJob)
}

// newRunAt is one in a namespace of another level.
func newRunAt(t *testing.T, level string, mpiJob *v2beta1.MPIJob) *run {
	t.Helper()
	needsLocalCluster(t, "pods of the agent run without the operator, with an image that is loaded into the node")
	client, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "run-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		now := int64(0)
		_ = client.CoreV1().Pods(namespace.Name).DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
		_ = client.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{})
	})
	mpiJob.Namespace, mpiJob.Name = namespace.Name, "train"
	run := &run{t: t, client: client, namespace: namespace.Name, job: job.FromMPIJob(mpiJob, job.Defaults{RunAsUser: new(int64(1000680000))}), delivery: plan.ImageVolume}
	for i := range run.job.Worker.Replicas {
		run.hosts = append(run.hosts, job.WorkerName(run.job.Name, i))
	}
	run.createSupport()
	return run
}

// createSupport makes the Service, the hostfile and the keys.
func (run *run) createSupport() {
	run.t.Helper()
	client, host := newPair(run.t), newPair(run.t)
	core := run.client.CoreV1()
	_, err := core.Services(run.namespace).Create(run.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "train-worker"},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"job": "train"}, PublishNotReadyAddresses: true},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = core.ConfigMaps(run.namespace).Create(run.t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "train-hostfile"}, Data: map[string]string{"hostfile": plan.Hostfile(run.job, run.hosts)},
		}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = core.Secrets(run.namespace).Create(run.t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "train-ssh-key"},
			Data: map[string][]byte{
				protocol.ClientKey: client.Private, protocol.ClientPublicKey: client.Public, protocol.AuthorizedKeys: client.Public,
				protocol.HostKey: host.Private, protocol.HostPublicKey: host.Public,
			},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		run.t.Fatal(err)
	}
	eventually.Succeeds(run.t, "service account", func() error {
		_, err := core.ServiceAccounts(run.namespace).Get(run.t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

func newPair(t *testing.T) sshkey.Pair {
	t.Helper()
	pair, err := sshkey.New(rand.Reader, sshkey.Ed25519)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func (run *run) parts() plan.Parts {
	return plan.Parts{Secret: "train-ssh-key", Hostfile: "train-hostfile", Delivery: plan.Delivery{Method: run.delivery, Image: agentImage}}
}

// start creates a pod of a template under a host's name.
func (run *run) start(name string, template corev1.PodTemplateSpec) {
	run.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"job": "train"}}, Spec: template.Spec}
	pod.Spec.Hostname, pod.Spec.Subdomain = name, "train-worker"
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: []string{fmt.Sprintf("train-worker.%s.svc.cluster.local", run.namespace)}}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.AutomountServiceAccountToken = new(false)
	if _, err := run.client.CoreV1().Pods(run.namespace).Create(run.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		run.t.Fatal(err)
	}
}

func (run *run) startWorkers(change ...func(index int, template *corev1.PodTemplateSpec)) {
	run.t.Helper()
	for i, host := range run.hosts {
		template := plan.WorkerPod(run.job, run.parts())
		for _, change := range change {
			change(i, &template)
		}
		run.start(host, template)
	}
}

func (run *run) startLauncher(change ...func(*corev1.PodTemplateSpec)) {
	run.t.Helper()
	template := plan.LauncherPod(run.job, run.parts())
	for _, change := range change {
		change(&template)
	}
	run.start("train-launcher", template)
}

// stampClock tells the launcher that all workers run, as the operator will.
func (run *run) stampClock() {
	run.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, plan.RunningAnnotation, time.Now().UTC().Format(time.RFC3339))
	if _, err := run.client.CoreV1().Pods(run.namespace).Patch(run.t.Context(), "train-launcher", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		run.t.Fatal(err)
	}
}

// outcome is how a launcher ended.
type outcome struct {
	protocol.Report
	exitCode int32
	log      string
	message  string
}

// end waits for the launcher's end.
func (run *run) end(patience time.Duration) outcome {
	run.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		pod, err := run.client.CoreV1().Pods(run.namespace).Get(run.t.Context(), "train-launcher", metav1.GetOptions{})
		if err != nil {
			run.t.Fatal(err)
		}
		if ended := terminated(pod); ended != nil {
			result := outcome{exitCode: ended.ExitCode, log: run.log("train-launcher"), message: ended.Message}
			if err := json.Unmarshal([]byte(ended.Message), &result.Report); err != nil {
				run.t.Fatalf("the termination message %q is not JSON: %v\n%s", ended.Message, err, result.log)
			}
			return result
		}
		if time.Now().After(deadline) {
			run.t.Fatalf("the launcher has not ended after %s:\n%s\n%s", patience, run.log("train-launcher"), run.describe())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// terminated is how the pod's container, or an init container of it that failed, ended.
func terminated(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		ended := status.State.Terminated
		if ended != nil && (ended.ExitCode != 0 || status.Name == pod.Spec.Containers[0].Name) {
			return ended
		}
	}
	return nil
}

func (run *run) log(pod string) string {
	output, _ := run.client.CoreV1().Pods(run.namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(context.Background())
	return string(output)
}

func (run *run) describe() string {
	output, _ := shell("bin/cluster kubectl get pods -o wide -n " + run.namespace + "; bin/cluster kubectl get events -n " + run.namespace + " | tail -15")
	var logs strings.Builder
	for _, host := range run.hosts {
		fmt.Fprintf(&logs, "--- %s\n%s", host, run.log(host))
	}
	return output + logs.String()
}

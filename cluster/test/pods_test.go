// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
)

const mpiImage = "trireme.local/openmpi:4"

// podOption changes a pod that a test is about to create.
type podOption func(*corev1.Pod)

// newPod runs a shell script in the Open MPI image, under a UID that no image
// knows and with every right taken away, as OpenShift would run it.
func newPod(name, script string, options ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](0),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   ptr.To(true),
				RunAsUser:      ptr.To[int64](1000680000),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name:    "main",
				Image:   mpiImage,
				Command: []string{"bash", "-c", script},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

// namespace is deleted with the test; the tests do not wait for that.
func namespace(t *testing.T, labels map[string]string) string {
	t.Helper()
	created, err := cluster.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: labels},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cluster.client.CoreV1().Namespaces().Delete(context.Background(), created.Name, metav1.DeleteOptions{})
	})
	awaitServiceAccount(t, created.Name)
	return created.Name
}

// awaitServiceAccount, because no pod is admitted before it is there.
func awaitServiceAccount(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		_, err := cluster.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
}

func create(t *testing.T, namespace string, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := cluster.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func get(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := cluster.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// awaitPhase ends the test with the pod's own story if the phase does not come.
func awaitPhase(t *testing.T, namespace, name string, want corev1.PodPhase) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, 2*time.Minute, func() error {
		var err error
		if pod, err = cluster.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != want {
			return fmt.Errorf("pod %s is %s, not %s: %+v", name, pod.Status.Phase, want, pod.Status.ContainerStatuses)
		}
		return nil
	})
	return pod
}

func logs(t *testing.T, namespace, name string) string {
	t.Helper()
	content, err := cluster.client.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatalf("logs of %s: %v", name, err)
	}
	return string(content)
}

// succeed runs a pod to its end and gives what it printed.
func succeed(t *testing.T, namespace string, pod *corev1.Pod) string {
	t.Helper()
	create(t, namespace, pod)
	awaitPhase(t, namespace, pod.Name, corev1.PodSucceeded)
	return logs(t, namespace, pod.Name)
}

// execute retries: a kubelet that was just started again answers before it has
// looked at the pods it has.
func execute(t *testing.T, namespace, pod string, command ...string) (output string) {
	t.Helper()
	eventually(t, time.Minute, func() (err error) {
		output, err = tryExecute(t, namespace, pod, command...)
		return err
	})
	return output
}

func tryExecute(t *testing.T, namespace, pod string, command ...string) (string, error) {
	t.Helper()
	request := cluster.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(cluster.config, "GET", request.URL().String())
	if err != nil {
		t.Fatal(err)
	}
	var output, complaints bytes.Buffer
	err = executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &output, Stderr: &complaints})
	if err != nil {
		return "", fmt.Errorf("exec %s: %w\n%s", strings.Join(command, " "), err, complaints.String())
	}
	return output.String(), nil
}

// eventually asks again until there is no error, and ends the test with the
// last one when time is up.
func eventually(t *testing.T, patience time.Duration, ask func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(deadline) || t.Context().Err() != nil {
			t.Fatalf("not within %s: %v", patience, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// refused checks that the API server said no, and why.
func refused(t *testing.T, err error, because string) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), because) {
		t.Fatalf("want the API server to refuse because of %q, got: %v", because, err)
	}
}

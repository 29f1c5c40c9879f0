// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

const (
	podsAtATime = 5
	podTimeout  = 2 * time.Minute
	// podPause is for kubelet to clean up after pods that are gone.
	podPause     = 2 * time.Second
	podImage     = "trireme.local/openmpi:4"
	agentImage   = "trireme.local/mpi-agent:dev"
	podNamespace = "trbench-"
)

// podKind is a kind of pod. kubelet looks after the volumes of a pod now and then,
// and a pod without any does not wait for that: so the agent is compared with pods
// of both kinds.
type podKind struct{ token, agent bool }

// podKinds: with the token of its service account a pod is as Kubernetes makes it
// where nobody says otherwise.
var podKinds = map[string]podKind{
	"bare": {token: true}, "with agent": {token: true, agent: true}, "bare, no volume": {}, "with agent, no other volume": {agent: true},
}

// podResults are times from creating pods until the last of them runs, by kind.
type podResults struct {
	Samples map[string][]float64 `json:"samples,omitempty"`
	LeftOut string               `json:"leftOut,omitempty"`
}

func (results *results) printPods(to io.Writer) {
	fmt.Fprintf(to, "\nStart of %d pods, from creating the first to the last one running, with the agent by image volume\n", podsAtATime)
	if results.Pods.LeftOut != "" {
		fmt.Fprintf(to, "left out: %s\n", results.Pods.LeftOut)
		return
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "pods\twith agent\tbare\tratio\tgoal")
	for _, pair := range []struct{ title, agent, bare string }{
		{"as Kubernetes makes them", "with agent", "bare"}, {"bare has no volume at all", "with agent, no other volume", "bare, no volume"},
	} {
		withAgent, bare := results.Pods.Samples[pair.agent], results.Pods.Samples[pair.bare]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", pair.title, spread(withAgent), spread(bare), results.judge("Start of pods, "+pair.title, withAgent, bare, podGoal))
	}
}

// measurePods needs a local cluster that runs.
func measurePods(ctx context.Context, settings settings, results *results) error {
	if settings.PodRounds == 0 {
		results.Pods.LeftOut = "-pod-rounds is 0"
		return nil
	}
	cluster, err := localCluster(ctx, settings)
	if err != nil {
		results.Pods.LeftOut = err.Error()
		return ctx.Err()
	}
	namespace, err := cluster.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: podNamespace}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a namespace: %w", err)
	}
	// Also after Ctrl-C.
	defer func() {
		_ = cluster.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), namespace.Name, metav1.DeleteOptions{})
	}()
	if err := waitForServiceAccount(ctx, cluster, namespace.Name); err != nil {
		return err
	}
	pods := &podBench{cluster: cluster, namespace: namespace.Name}
	return pods.alternate(ctx, settings.PodRounds, &results.Pods)
}

// localCluster is a client for the cluster that `bin/cluster` speaks of, with the
// images in it.
func localCluster(ctx context.Context, settings settings) (kubernetes.Interface, error) {
	tool, err := filepath.Abs("../bin/cluster") // The program runs in bench/, as `make bench-startup` does.
	if err != nil {
		return nil, err
	}
	const how = "`make cluster` starts one; TRIREME_CLUSTER_NAME and TRIREME_CLUSTER_NETWORK name another"
	if output, err := exec.CommandContext(ctx, tool, "status").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("no local cluster runs well; %s (bin/cluster status: %w: %.200s)", how, err, output)
	}
	images, err := exec.CommandContext(ctx, tool, "image", "list").CombinedOutput()
	if err != nil || !strings.Contains(string(images), podImage) {
		return nil, fmt.Errorf("the cluster has no image %s: run `bin/cluster image mpi openmpi4`", podImage)
	}
	if output, err := exec.CommandContext(ctx, tool, "image", "load", settings.Agent, "--as", agentImage).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("load the agent's image: %w: %s", err, output)
	}
	text, err := exec.CommandContext(ctx, tool, "kubectl", "config", "view", "--raw").Output()
	if err != nil {
		return nil, fmt.Errorf("read the cluster's kubeconfig: %w", err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // The client's own limit would be measured.
	return kubernetes.NewForConfig(config)
}

// waitForServiceAccount: before it exists no pod can be made.
func waitForServiceAccount(ctx context.Context, cluster kubernetes.Interface, namespace string) error {
	for deadline := time.Now().Add(podTimeout); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if _, err := cluster.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err == nil {
			return nil
		}
	}
	return errors.Join(ctx.Err(), fmt.Errorf("namespace %s gets no service account; see `bin/cluster logs kube-controller-manager`", namespace))
}

type podBench struct {
	cluster   kubernetes.Interface
	namespace string
}

// alternate measures all kinds in each round, in an order that is drawn: kubelet
// still cleans up after a kind when the next one starts, so none may always follow
// the same other. The first round does not count.
func (bench *podBench) alternate(ctx context.Context, rounds int, results *podResults) error {
	results.Samples = map[string][]float64{}
	names := slices.Sorted(maps.Keys(podKinds))
	for round := range rounds + 1 {
		for _, i := range rand.Perm(len(names)) {
			name := names[i]
			took, err := bench.measure(ctx, podKinds[name])
			if err != nil {
				return fmt.Errorf("start pods: %w", err)
			}
			progress("pods     %-28s %.3f s   round %d of %d, load %s", name, took.Seconds(), round, rounds, loadAverage())
			if round > 0 {
				results.Samples[name] = append(results.Samples[name], took.Seconds())
			}
		}
	}
	return nil
}

// measure makes pods, and removes them before the next ones are made.
func (bench *podBench) measure(ctx context.Context, kind podKind) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	pods := bench.cluster.CoreV1().Pods(bench.namespace)
	events, err := pods.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	began := time.Now()
	for i := range podsAtATime {
		if _, err := pods.Create(ctx, newPod(i, kind), metav1.CreateOptions{}); err != nil {
			return 0, err
		}
	}
	if err := awaitPods(ctx, events, func(event watch.Event, pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning }); err != nil {
		return 0, fmt.Errorf("%w: not all pods run; see `bin/cluster kubectl get pods --all-namespaces`", err)
	}
	took := time.Since(began)
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return 0, err
	}
	if err := awaitPods(ctx, events, func(event watch.Event, _ *corev1.Pod) bool { return event.Type == watch.Deleted }); err != nil {
		return 0, err
	}
	time.Sleep(podPause)
	return took, nil
}

// awaitPods waits until something was seen of every pod.
func awaitPods(ctx context.Context, events watch.Interface, holds func(watch.Event, *corev1.Pod) bool) error {
	seen := map[string]bool{}
	for len(seen) < podsAtATime {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-events.ResultChan():
			if !open {
				return errors.New("the API server has ended the watch")
			}
			if pod, isPod := event.Object.(*corev1.Pod); isPod && holds(event, pod) {
				seen[pod.Name] = true
			}
		}
	}
	return nil
}

func newPod(number int, kind podKind) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", number)},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			AutomountServiceAccountToken:  new(kind.token),
			EnableServiceLinks:            new(false),
			Containers: []corev1.Container{{
				Name: "main", Image: podImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sleep", "infinity"},
			}},
		},
	}
	if kind.agent {
		plan.AddAgent(&pod.Spec, plan.Delivery{Method: plan.ImageVolume, Image: agentImage})
	}
	return pod
}

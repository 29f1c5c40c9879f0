// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// recovery is within seconds on a machine that does nothing else; a test has to
// do with a busy one.
const recovery = time.Minute

func (c *testCluster) layout(t *testing.T) layout.Layout {
	t.Helper()
	l, err := layout.New(clusterName, "..", network)
	if err != nil {
		t.Fatal(err)
	}
	l.Data = c.data()
	return l
}

func (c *testCluster) report(t *testing.T) supervisor.Report {
	t.Helper()
	report, err := supervisor.Ask(t.Context(), c.layout(t))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestStatus(t *testing.T) {
	output := cluster.must(t, "status")
	for _, want := range append(component.Names(), "trireme-test (ready)", "NetworkPolicy objects are stored but NOT enforced") {
		if !strings.Contains(output, want) {
			t.Errorf("status does not mention %q:\n%s", want, output)
		}
	}
}

func TestLogs(t *testing.T) {
	for _, name := range component.Names() {
		if output := cluster.must(t, "logs", name); !strings.Contains(output, "--- "+name+" starts at ") {
			t.Errorf("log of %s:\n%s", name, output)
		}
	}
	output, err := cluster.run(t.Context(), "logs", "kubelt")
	if err == nil || !strings.Contains(output, `component "kubelt" does not exist; use one of: etcd, kube-apiserver`) {
		t.Errorf("want the names of the components, got %v: %s", err, output)
	}
}

func TestUpTwiceIsOneCluster(t *testing.T) {
	before := cluster.report(t)
	cluster.must(t, "up")
	if after := cluster.report(t); after.PID != before.PID {
		t.Errorf("the supervisor was process %d and is %d", before.PID, after.PID)
	}
}

// TestUpFromAnotherCheckout changes nothing, and says that it does not.
func TestUpFromAnotherCheckout(t *testing.T) {
	const notice = "it runs another build than that of this checkout"
	if output := cluster.must(t, "up"); strings.Contains(output, notice) {
		t.Errorf("the same checkout counts as another:\n%s", output)
	}
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS("..")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "components", "containerd", "NOTES"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := cluster.report(t)
	if output := cluster.must(t, "--source", other, "up"); !strings.Contains(output, notice) {
		t.Errorf("up does not say that it would start something else:\n%s", output)
	}
	if after := cluster.report(t); after.PID != before.PID {
		t.Errorf("the supervisor was process %d and is %d", before.PID, after.PID)
	}
}

func TestSecondBuildHasNothingToDo(t *testing.T) {
	output := cluster.must(t, "build")
	for _, module := range []string{"kubernetes", "containerd", "pause"} {
		if !regexp.MustCompile(`build ` + module + ` \(cached\)`).MatchString(output) {
			t.Errorf("%s was built again:\n%s", module, output)
		}
	}
}

// longRunningPod is the one that must not notice what happens to the cluster.
func longRunningPod(t *testing.T) (namespaceName string, pod *corev1.Pod) {
	t.Helper()
	ns := namespace(t, nil)
	create(t, ns, newPod("steady", "sleep 3600"))
	return ns, awaitPhase(t, ns, "steady", corev1.PodRunning)
}

// stillRuns looks at the process itself, not only at what the API server
// remembers of it.
func stillRuns(t *testing.T, ns string, before *corev1.Pod) {
	t.Helper()
	eventually(t, recovery, func() error {
		pod, err := cluster.client.CoreV1().Pods(ns).Get(t.Context(), before.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want, got := before.Status.ContainerStatuses[0].ContainerID, pod.Status.ContainerStatuses[0].ContainerID
		if pod.Status.Phase != corev1.PodRunning || got != want {
			return fmt.Errorf("pod is %s with container %s; it was Running with %s", pod.Status.Phase, got, want)
		}
		return nil
	})
	if got := execute(t, ns, before.Name, "cat", "/proc/1/comm"); got != "sleep\n" {
		t.Errorf("process 1 of the pod is %q", got)
	}
}

func TestComponentsComeBackAfterKill(t *testing.T) {
	ns, pod := longRunningPod(t)
	for _, name := range component.Names() {
		t.Run(name, func(t *testing.T) {
			before := statusOf(t, cluster.report(t), name)
			killed := time.Now()
			if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, recovery, func() error {
				report := cluster.report(t)
				// More often, if what it needs was still away.
				if now := statusOf(t, report, name); now.Restarts <= before.Restarts {
					return fmt.Errorf("%s was not started again after %d times", name, now.Restarts)
				}
				if output, err := cluster.run(t.Context(), "status"); err != nil {
					return fmt.Errorf("%w\n%s", err, output)
				}
				return nil
			})
			stillRuns(t, ns, pod)
			t.Logf("well again after %s", time.Since(killed).Round(time.Millisecond))
			// Well means that work gets done, by this component too.
			if got := succeed(t, ns, newPod("after-"+name, "getent hosts kubernetes.default.svc >/dev/null && echo done")); got != "done\n" {
				t.Errorf("a new pod printed %q", got)
			}
			if use, special := usesOf[name]; special {
				use(t, namespace(t, nil))
			}
		})
	}
}

// usesOf are the components that running a pod does not need.
var usesOf = map[string]func(t *testing.T, ns string){
	"storage": func(t *testing.T, ns string) {
		createClaim(t, ns, "data")
		succeed(t, ns, newPod("writer", "echo kept > /data/file", withClaim("data")))
	},
	"jobset": runJobSet,
	"kwok": func(t *testing.T, ns string) {
		create(t, ns, newPod("simulated", "true", onFakeNode(1)))
		awaitPhase(t, ns, "simulated", corev1.PodRunning)
	},
}

func statusOf(t *testing.T, report supervisor.Report, name string) supervisor.Status {
	t.Helper()
	i := slices.IndexFunc(report.Components, func(s supervisor.Status) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no component %s in %+v", name, report)
	}
	return report.Components[i]
}

func TestUpTakesOverFromAKilledSupervisor(t *testing.T) {
	ns, pod := longRunningPod(t)
	before := cluster.report(t)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, recovery, func() error {
		output, err := cluster.run(t.Context(), "status")
		if err == nil || !strings.Contains(output, "the supervisor is not running; ") || !strings.Contains(output, "`up` starts a new supervisor, `down` stops them") {
			return fmt.Errorf("status says of a cluster without supervisor (%v): %s", err, output)
		}
		return nil
	})
	cluster.must(t, "kubectl", "get", "nodes") // the API server does not need the supervisor
	cluster.must(t, "up")
	stillRuns(t, ns, pod)
	if output := cluster.must(t, "logs", "supervisor"); !strings.Contains(output, "supervisor starts") || !strings.Contains(output, "name=kubelet") {
		t.Errorf("log of the supervisor:\n%s", output)
	}
	for _, c := range before.Components {
		if c.PID != 0 && host.Alive(c.PID) {
			t.Errorf("the old %s still runs beside the new one", host.Describe(c.PID))
		}
	}
}

func TestDownLeavesNothingAndUpFindsTheData(t *testing.T) {
	ns := namespace(t, nil)
	createClaim(t, ns, "data")
	create(t, ns, newPod("faithful", "test -e /data/file || echo first > /data/file; cat /data/file; sleep 3600", withClaim("data"),
		func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }))
	create(t, ns, newPod("mortal", "sleep 3600"))
	for _, name := range []string{"faithful", "mortal"} {
		awaitPhase(t, ns, name, corev1.PodRunning)
	}
	cluster.must(t, "down")
	clean := machine(t)
	assertNothingOfOurs(t, clean)
	if output, err := cluster.run(t.Context(), "down"); err != nil {
		t.Errorf("down of a cluster that is down: %v\n%s", err, output)
	}

	cluster.must(t, "up")
	eventually(t, time.Minute, func() error {
		// As after a restart of the machine: what may start again does.
		mortal, faithful := get(t, ns, "mortal"), get(t, ns, "faithful")
		if mortal.Status.Phase != corev1.PodFailed || faithful.Status.Phase != corev1.PodRunning ||
			faithful.Status.ContainerStatuses[0].RestartCount != 1 {
			return fmt.Errorf("mortal is %s, faithful is %s: %+v", mortal.Status.Phase, faithful.Status.Phase, faithful.Status.ContainerStatuses)
		}
		return nil
	})
	if got := execute(t, ns, "faithful", "cat", "/data/file"); got != "first\n" {
		t.Errorf("the volume holds %q", got)
	}
	cluster.must(t, "registry", "env") // it was started before
	cluster.must(t, "down")
	if diff := cmp.Diff(clean, machine(t)); diff != "" {
		t.Errorf("down leaves the machine different from how up found it (-before +after):\n%s", diff)
	}

	cluster.must(t, "reset")
	for _, directory := range []string{"volumes", "registry"} {
		if left, err := os.ReadDir(filepath.Join(cluster.data(), directory)); !os.IsNotExist(err) {
			t.Errorf("reset left %s %v (%v)", directory, left, err)
		}
	}
	cluster.must(t, "up", "--fake-nodes", fmt.Sprint(fakeNodes), "--fake-node-gpus", fmt.Sprint(gpusPerNode))
	if err := cluster.connect(); err != nil {
		t.Fatal(err)
	}
	_, err := cluster.client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("reset did not forget: %v", err)
	}
}

// TestTwoUpsAtOnce: the second one waits and finds the work done. Both have the settings
// of a proxy, as most company machines do, which knows nothing of a cluster inside this
// machine and is not asked.
func TestTwoUpsAtOnce(t *testing.T) {
	withProxy := func(arguments ...string) error {
		command := cluster.command(t.Context(), arguments...)
		// Nobody listens there.
		command.Env = append(command.Env, "HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY=")
		if output, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", arguments, err, output)
		}
		return nil
	}
	cluster.must(t, "down")
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- withProxy("up") }()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	for _, arguments := range [][]string{{"status"}, {"kubectl", "get", "nodes"}} {
		if err := withProxy(arguments...); err != nil {
			t.Error(err)
		}
	}
}

// TestOneClusterDoesNotDisturbAnother that runs beside it: both mount over the
// same paths of the machine.
func TestOneClusterDoesNotDisturbAnother(t *testing.T) {
	other := func(arguments ...string) {
		t.Helper()
		command := cluster.command(context.Background(), arguments...)
		command.Env = append(command.Env, "TRIREME_CLUSTER_NAME=trireme-other", "TRIREME_CLUSTER_NETWORK=10.196.0.0/16",
			"TRIREME_CLUSTER_DATA=/var/lib/trireme-other-cluster")
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", arguments, err, output)
		}
	}
	cluster.must(t, "down")
	clean := machine(t)
	// First in, first out: the paths were the other cluster's to create.
	other("up")
	cluster.must(t, "up")
	other("reset", "--images")
	ns := namespace(t, nil)
	createClaim(t, ns, "data")
	if got := succeed(t, ns, newPod("writer", "echo kept > /data/file; cat /data/file", withClaim("data"))); got != "kept\n" {
		t.Errorf("a pod with a volume printed %q", got)
	}
	cluster.must(t, "down")
	if diff := cmp.Diff(clean, machine(t)); diff != "" {
		t.Errorf("the two leave something (-before +after):\n%s", diff)
	}
	cluster.must(t, "up")
}

func TestInterruptedUpCleansUp(t *testing.T) {
	cluster.must(t, "down")
	clean := machine(t)
	for _, step := range []string{"network", "etcd", "kubelet"} {
		t.Run("in step "+step, func(t *testing.T) {
			command := cluster.command(t.Context(), "up")
			output, err := command.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			said, interrupted := "", false
			for buffer := make([]byte, 4096); ; {
				n, err := output.Read(buffer)
				said += string(buffer[:n])
				if !interrupted && strings.Contains(said, "  "+step) {
					interrupted = true
					if err := command.Process.Signal(os.Interrupt); err != nil {
						t.Fatal(err)
					}
				}
				if err != nil {
					break
				}
			}
			if err := command.Wait(); err == nil || !strings.Contains(said, "cluster: interrupted") {
				t.Errorf("up ended with %v and said:\n%s", err, said)
			}
			if diff := cmp.Diff(clean, machine(t)); diff != "" {
				t.Errorf("an interrupted up leaves something (-before +after):\n%s", diff)
			}
		})
	}
	cluster.must(t, "up")
}

//go:build linux

package test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/cluster/internal/component"
	"github.com/trireme-mpi/trireme/cluster/internal/host"
	"github.com/trireme-mpi/trireme/cluster/internal/layout"
	"github.com/trireme-mpi/trireme/cluster/internal/supervisor"
)

// recovery is the promise: a cluster that lost a component is well again
// within this time.
const recovery = 20 * time.Second

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
	if err == nil || !strings.Contains(output, `no component "kubelt"; there are: etcd, kube-apiserver`) {
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
	const notice = "it runs another build than this checkout's"
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
				if now := statusOf(t, report, name); now.Restarts != before.Restarts+1 {
					return fmt.Errorf("%s was started again %d times, not %d", name, now.Restarts, before.Restarts+1)
				}
				if output, err := cluster.run(t.Context(), "status"); err != nil {
					return fmt.Errorf("%w\n%s", err, output)
				}
				return nil
			})
			stillRuns(t, ns, pod)
			if took := time.Since(killed); took > recovery {
				t.Errorf("well again after %s", took)
			}
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
		if err == nil || !strings.Contains(output, "the supervisor has died; ") || !strings.Contains(output, "`up` takes over, `down` ends them") {
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
	cluster.must(t, "down")
	if diff := cmp.Diff(clean, machine(t)); diff != "" {
		t.Errorf("down leaves the machine different from how up found it (-before +after):\n%s", diff)
	}

	cluster.must(t, "reset")
	if left, err := os.ReadDir(filepath.Join(cluster.data(), "volumes")); !os.IsNotExist(err) {
		t.Errorf("reset left volumes %v (%v)", left, err)
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

// TestTwoUpsAtOnce: the second one waits and finds the work done.
func TestTwoUpsAtOnce(t *testing.T) {
	cluster.must(t, "down")
	results := make(chan error, 2)
	for range 2 {
		go func() {
			output, err := cluster.run(t.Context(), "up")
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, output)
			}
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	cluster.must(t, "status")
}

// TestProxyOfTheUserIsNotAsked: most company machines have one, and it knows
// nothing of a cluster inside this machine.
func TestProxyOfTheUserIsNotAsked(t *testing.T) {
	cluster.must(t, "down")
	for _, arguments := range [][]string{{"up"}, {"status"}, {"kubectl", "get", "nodes"}} {
		command := cluster.command(t.Context(), arguments...)
		// Nobody listens there.
		command.Env = append(command.Env, "HTTPS_PROXY=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1", "NO_PROXY=")
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", arguments, err, output)
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

func TestErrorsNameTheCauseAndTheWayOut(t *testing.T) {
	fail := func(t *testing.T, command *exec.Cmd, wants ...string) {
		t.Helper()
		before := machine(t)
		output, err := command.CombinedOutput()
		if err == nil {
			t.Fatalf("it worked:\n%s", output)
		}
		for _, want := range wants {
			if !strings.Contains(string(output), want) {
				t.Errorf("the error does not say %q:\n%s", want, output)
			}
		}
		if diff := cmp.Diff(before, machine(t)); diff != "" {
			t.Errorf("the failed command leaves something (-before +after):\n%s", diff)
		}
	}
	other := func(t *testing.T, settings ...string) *exec.Cmd {
		command := cluster.command(t.Context(), "up")
		command.Env = append(command.Env, "TRIREME_CLUSTER_NAME=trireme-err", "TRIREME_CLUSTER_NETWORK=10.196.0.0/16",
			"TRIREME_CLUSTER_DATA="+filepath.Join(t.TempDir(), "data"))
		command.Env = append(command.Env, settings...)
		return command
	}
	t.Run("not root", func(t *testing.T) {
		command := other(t)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		fail(t, command, "user id 65534 is not root", "run the same command as root")
	})
	t.Run("address range taken", func(t *testing.T) {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br-intheway"}}
		if err := netlink.LinkAdd(bridge); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.LinkDel(bridge) })
		address := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 196, 7, 1), Mask: net.CIDRMask(24, 32)}}
		if err := netlink.AddrAdd(bridge, address); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			t.Fatal(err)
		}
		fail(t, other(t), "network 10.196.0.0/16 is taken: device br-intheway (of Docker) has 10.196.7.0/24", "choose another block with --network")
	})
	t.Run("too little disk", func(t *testing.T) {
		small := t.TempDir()
		if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=16m"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(small, syscall.MNT_DETACH) })
		fail(t, other(t, "TRIREME_CLUSTER_DATA="+small+"/data"), "has 0.0 GiB free, 4 are needed", "put it elsewhere with TRIREME_CLUSTER_DATA=DIRECTORY")
	})
	t.Run("a package that will not install", func(t *testing.T) {
		programs := t.TempDir()
		script := "#!/bin/bash\necho 'E: Unable to locate package runc'; exit 100\n"
		if err := os.WriteFile(filepath.Join(programs, "apt-get"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		runc, found := host.Find(host.Runc.Candidates...)
		if !found {
			t.Fatal("no runc to hide")
		}
		// In a mount namespace of its own, so that only this command misses it.
		command := other(t, "PATH="+programs+":"+os.Getenv("PATH"))
		command.Path, command.Args = "/usr/bin/unshare", []string{"unshare", "--mount", "bash", "-c",
			`mount --bind /dev/null "$1" && exec "$2" up`, "bash", runc, cluster.tool}
		fail(t, command, "apt-get", "E: Unable to locate package runc", "repair apt (or install the packages by hand) and run the same command again")
	})
	t.Run("a directory that holds other things", func(t *testing.T) {
		used := t.TempDir()
		if err := os.Mkdir(filepath.Join(used, "photos"), 0o755); err != nil {
			t.Fatal(err)
		}
		fail(t, other(t, "TRIREME_CLUSTER_DATA="+used), "directory "+used+" holds other things (photos, ...)", "name one that is empty")
	})
	t.Run("a file where a directory must be", func(t *testing.T) {
		// By then the network exists, which must go again.
		data := filepath.Join(t.TempDir(), "data")
		if err := os.MkdirAll(data, 0o711); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{".trireme-cluster", "logs"} {
			if err := os.WriteFile(filepath.Join(data, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fail(t, other(t, "TRIREME_CLUSTER_DATA="+data), "create directory: mkdir "+data+"/logs", "not a directory")
	})
	t.Run("other data than the running cluster's", func(t *testing.T) {
		command := cluster.command(t.Context(), "up")
		command.Env = append(command.Env, "TRIREME_CLUSTER_DATA=/elsewhere")
		fail(t, command, "the cluster runs with its data in "+cluster.data()+", not /elsewhere; take it `down` first")
	})
	t.Run("another run directory than the running cluster's", func(t *testing.T) {
		command := cluster.command(t.Context(), "up")
		command.Env = append(command.Env, "TRIREME_CLUSTER_RUN=/run/elsewhere")
		fail(t, command, "cluster trireme-test runs already", "TRIREME_CLUSTER_RUN is not what it was")
	})
	t.Run("an image that is none", func(t *testing.T) {
		fail(t, cluster.command(t.Context(), "image", "load", "lifecycle_test.go"), "lifecycle_test.go is neither an image archive nor a static binary")
	})
	t.Run("another network than the running one", func(t *testing.T) {
		command := cluster.command(t.Context(), "up", "--network", "10.195.0.0/16")
		fail(t, command, "the cluster runs on network 10.198.0.0/16, not 10.195.0.0/16; take it `down` first")
	})
}

// TestPortTakenByAStranger: ports are inside the cluster's own network, so
// only something that was started in there can hold one.
func TestPortTakenByAStranger(t *testing.T) {
	ns, pod := longRunningPod(t)
	report := cluster.report(t)
	pids := []int{report.PID, statusOf(t, report, "kube-apiserver").PID}
	if err := host.Kill(func() []int { return pids }, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("python3", "-c", "import socket, time; s = socket.create_server(('0.0.0.0', 6443)); print('listening', flush=True); time.sleep(600)")
	output, err := stranger.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.InNamespace(cluster.layout(t), stranger.Start); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Wait() }()
	defer func() { _ = stranger.Process.Kill() }()
	if _, err := output.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	said, err := cluster.run(t.Context(), "up")
	want := fmt.Sprintf("port 6443 of the cluster's network is taken by %s; end that process", host.Describe(stranger.Process.Pid))
	if err == nil || !strings.Contains(said, want) {
		t.Errorf("want %q, got %v:\n%s", want, err, said)
	}
	if !host.Alive(stranger.Process.Pid) {
		t.Error("up ended a process that it did not start")
	}
	if err := stranger.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Nor does it end what still runs when it cannot take it over.
	if output, err := cluster.run(t.Context(), "up", "--network", "10.195.0.0/16"); err == nil || !strings.Contains(output, "not an address of 10.195.0.0/16") {
		t.Errorf("another network for what still runs: %v\n%s", err, output)
	}
	cluster.must(t, "up")
	stillRuns(t, ns, pod)
}

// machine is everything that a cluster could leave on it, as sorted lists.
func machine(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range interfaces {
		found["devices"] = append(found["devices"], device.Name)
	}
	found["routes"] = lines(t, "/proc/net/route")
	found["mounts"] = fields(lines(t, "/proc/self/mountinfo"), 4)
	found["namespaces"] = names("/run/netns/*")
	found["rules"] = append(ruleset(t), legacyTables()...)
	found["sockets"] = ours(fields(lines(t, "/proc/net/unix"), 7))
	found["directories"] = names("/run/containerd*", "/var/lib/kubelet*", "/var/lib/cni*", "/var/log/containers*", "/run/trireme-test*", "/run/trireme-err*", "/run/trireme-other*")
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && len(ours([]string{path})) > 0 {
			found["control groups"] = append(found["control groups"], path)
		}
		return nil
	})
	found["processes"] = processes()
	for _, setting := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		found["kernel settings"] = append(found["kernel settings"], setting+"="+strings.Join(lines(t, "/proc/sys/"+setting), ""))
	}
	for _, list := range found {
		slices.Sort(list)
	}
	return found
}

// assertNothingOfOurs needs no picture of before: nothing may bear our name.
func assertNothingOfOurs(t *testing.T, found map[string][]string) {
	t.Helper()
	for kind, list := range found {
		if left := ours(list); len(left) > 0 {
			t.Errorf("%s left after down: %v", kind, left)
		}
	}
}

// ours picks what bears the cluster's name, its directory or its network.
func ours(list []string) (mine []string) {
	for _, entry := range list {
		// 10.198.0.0 and 10.196.0.0 as /proc/net/route writes them.
		for _, sign := range []string{clusterName, "trireme-err", "trireme-other", cluster.directory, "0000C60A", "0000C40A"} {
			if strings.Contains(entry, sign) {
				mine = append(mine, entry)
				break
			}
		}
	}
	return mine
}

// processes lists those that were started from or for the cluster, zombies
// that init has yet to collect excepted.
func processes() (mine []string) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err != nil || pid == os.Getpid() || !host.Alive(pid) {
			continue
		}
		command, _ := os.ReadFile(file)
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		line := strings.ReplaceAll(string(command), "\x00", " ")
		if len(ours([]string{line, string(groups)})) > 0 {
			mine = append(mine, line)
		}
	}
	return mine
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func fields(lines []string, n int) (values []string) {
	for _, line := range lines {
		if all := strings.Fields(line); len(all) > n {
			values = append(values, all[n])
		}
	}
	return values
}

func names(patterns ...string) (all []string) {
	for _, pattern := range patterns {
		matches, _ := filepath.Glob(pattern)
		all = append(all, matches...)
	}
	return all
}

// ruleset leaves counters out: other traffic moves them.
func ruleset(t *testing.T) []string {
	t.Helper()
	output, err := exec.CommandContext(context.Background(), "nft", "--stateless", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v\n%s", err, output)
	}
	return strings.Split(strings.TrimSpace(string(output)), "\n")
}

func legacyTables() []string {
	content, _ := os.ReadFile("/proc/net/ip_tables_names")
	return strings.Fields(string(content))
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// whatIsKilled are what a job needs, in turn. All but the operator are processes of
// the local cluster, which starts them again.
var whatIsKilled = []string{operatorLeader, "kube-apiserver", "kubelet", "containerd", "etcd", "kube-controller-manager", "jobset"}

const operatorLeader = "the operator that leads"

var kinds = []string{"TrainJob", "MPIJob"}

// recovery is how long whatever was killed may take until all is as before, on a
// machine that has much else to do.
const recovery = 3 * time.Minute

// Whatever is killed, and whatever a job does at that moment, the job ends, and says
// the truth about its end. What has gone well is not done twice.
func TestKilledWithoutWarning(t *testing.T) {
	needsLocalCluster(t, "components of the cluster are killed")
	killed := whatIsKilled
	if !isThorough() {
		killed = killed[:2]
	}
	for i, name := range killed {
		// Both kinds take their turns.
		one, other := kinds[i%2], kinds[1-i%2]
		t.Run(name, func(t *testing.T) {
			waitUntilWell(t)
			begin := time.Now()
			stage := newStage(t)
			jobs := stage.prepare(one, other)
			seconds := killAt(t, stage, jobs, name)
			waitUntilWell(t)
			recovered := time.Since(begin)
			stage.tell(jobs[runs]...)
			for moment, jobs := range jobs {
				for _, job := range jobs {
					// What a container prints while containerd is away, and then ends, nobody reads.
					job.wantTruth(moment, name != "containerd" || moment == runs)
				}
			}
			stage.wantOwners()
			wantSum(t, submit(t, both(2, allreduce)[other]), "4 ranks on 2 hosts, sum 10")
			t.Logf("away for %s; well again after %s, all done after %s", seconds, recovered.Round(100*time.Millisecond), time.Since(begin).Round(100*time.Millisecond))
		})
	}
}

// moment is where a job is in its life when something is killed.
type moment string

const (
	begins moment = "its pods are being created"
	runs   moment = "its ranks run"
	ends   moment = "its launcher ends"
	fails  moment = "its launcher fails"
)

// untilTold is a program that a file ends. The files are on a volume, which the test reads
// and writes as a directory of this machine: nothing that is killed stands between.
const untilTold = `
import os, sys, time, uuid
from mpi4py import MPI
world = MPI.COMM_WORLD
if world.rank == 0:
    open("/runs/NAME.begun." + uuid.uuid4().hex, "w").close()
    while not os.path.exists("/runs/NAME.end"):
        time.sleep(0.1)
together = world.Ibarrier()
while not together.Test():
    time.sleep(0.1)
total = world.allreduce(world.rank + 1)
if world.rank == 0:
    print(f"{world.size} ranks, sum {total}", flush=True)
    with open("/runs/NAME.sum", "w") as file:
        file.write(str(total))
world.Barrier()
`

const sumOfRanks = "2 ranks, sum 3"

// stage is a namespace with the volume, and somebody who watches what happens in it.
type stage struct {
	t         *testing.T
	client    client.WithWatch
	namespace string
	// directory is the volume.
	directory string
	sighted   *sighted
}

func newStage(t *testing.T) *stage {
	t.Helper()
	api, namespace := newNamespace(t)
	stage := &stage{t: t, client: api, namespace: namespace, sighted: watchAll(t, namespace)}
	volume := claim(namespace, "runs")
	if err := api.Create(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the volume is there", func() error {
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(volume), volume); err != nil {
			return err
		}
		var made corev1.PersistentVolume
		if err := api.Get(t.Context(), client.ObjectKey{Name: volume.Spec.VolumeName}, &made); err != nil {
			return err
		}
		stage.directory = made.Spec.Local.Path
		return nil
	})
	return stage
}

// actor is a job, with the process of its launcher.
type actor struct {
	*theJob
	stage *stage
}

// prepare starts jobs of both kinds, and waits until they run: those that begin when it
// happens are not started yet.
func (stage *stage) prepare(one, other string) map[moment][]*actor {
	stage.t.Helper()
	jobs := map[moment][]*actor{
		runs:  {stage.submit(one, "runs", untilTold)},
		ends:  {stage.submit(one, "ends", untilTold), stage.submit(other, "ends", untilTold)},
		fails: {stage.submit(other, "fails", untilTold+"raise ValueError('loss is nan')\n")},
	}
	for _, job := range slices.Concat(jobs[runs], jobs[ends], jobs[fails]) {
		job.until("it runs", recovery, func(training.Progress) bool { return job.begun() == 1 })
	}
	return jobs
}

// submit starts a job with the volume in its workers.
func (stage *stage) submit(kind, name, program string) *actor {
	stage.t.Helper()
	name = strings.ToLower(kind) + "-" + name
	object := both(2, strings.ReplaceAll(program, "NAME", name))[kind]
	// One rank a worker: there are many jobs at a time.
	object.SetName(name)
	volume := corev1.Volume{Name: "runs", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "runs"}}}
	mount := corev1.VolumeMount{Name: "runs", MountPath: "/runs"}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.Trainer.SlotsPerWorker = new(int32(1))
		object.Spec.Trainer.Volumes, object.Spec.Trainer.VolumeMounts = []corev1.Volume{volume}, []corev1.VolumeMount{mount}
	case *v2beta1.MPIJob:
		object.Spec.SlotsPerWorker = new(int32(1))
		object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Command[2] = "2"
		pod := &object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec
		pod.Volumes, pod.Containers[0].VolumeMounts = []corev1.Volume{volume}, []corev1.VolumeMount{mount}
	}
	return &actor{theJob: submitTo(stage.t, stage.client, stage.namespace, object), stage: stage}
}

// begun is how often the ranks of a job have started.
func (job *actor) begun() int {
	found, _ := filepath.Glob(filepath.Join(job.stage.directory, job.object.GetName()+".begun.*"))
	return len(found)
}

// tell has jobs end.
func (stage *stage) tell(jobs ...*actor) {
	stage.t.Helper()
	for _, job := range jobs {
		if err := os.WriteFile(filepath.Join(stage.directory, job.object.GetName()+".end"), nil, 0o600); err != nil {
			stage.t.Fatal(err)
		}
	}
}

// killAt starts the jobs that begin, and kills as soon as one of them has a pod. Then
// it tells others to end, and kills again what has come back until their launchers
// are gone: they end while it is away.
func killAt(t *testing.T, stage *stage, jobs map[moment][]*actor, name string) time.Duration {
	t.Helper()
	process := processesOf(t, name)
	var launchers []int
	for _, job := range slices.Concat(jobs[ends], jobs[fails]) {
		launchers = append(launchers, job.launcherProcess())
	}
	for _, kind := range kinds {
		jobs[begins] = append(jobs[begins], stage.submit(kind, "begins", untilTold))
	}
	stage.tell(jobs[begins]...)
	stage.sighted.wait(jobs[begins][1].object.GetName())
	begin := time.Now()
	kill(t, process())
	stage.tell(slices.Concat(jobs[ends], jobs[fails])...)
	for slices.ContainsFunc(launchers, isAlive) {
		kill(t, process())
		if time.Since(begin) > time.Minute {
			t.Fatal("the launchers do not end")
		}
		time.Sleep(20 * time.Millisecond)
	}
	return time.Since(begin).Round(10 * time.Millisecond)
}

func kill(t *testing.T, process int) {
	t.Helper()
	if process == 0 {
		return
	}
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
		t.Fatal(err)
	}
}

// isAlive tells whether a process is there, and not only its name.
func isAlive(process int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	return err == nil && !strings.Contains(string(status), ") Z ")
}

// processesOf gives a component's process each time it is asked, zero if there is none
// now. The operator's is always the first: nobody takes its place for a while.
func processesOf(t *testing.T, name string) func() int {
	t.Helper()
	if name == operatorLeader {
		leader, err := strconv.Atoi(processOf(t, leaderPod(t), "trireme-system", "/operator\x00"))
		if err != nil {
			t.Fatal(err)
		}
		return func() int { return leader }
	}
	return func() int {
		// It fails while something is not well.
		output, _ := shell("bin/cluster status")
		for line := range strings.Lines(output) {
			if fields := strings.Fields(line); len(fields) > 2 && fields[0] == name {
				process, _ := strconv.Atoi(fields[2])
				return process
			}
		}
		t.Fatalf("no component %s in:\n%s", name, output)
		return 0
	}
}

// launcherProcess is what ends when the launcher does.
func (job *actor) launcherProcess() int {
	job.t.Helper()
	pods := job.pods(training.RoleLauncher)
	if len(pods) != 1 {
		job.t.Fatalf("%s has %d launchers", job.object.GetName(), len(pods))
	}
	hostname := pods[0].Spec.Hostname
	if hostname == "" {
		hostname = pods[0].Name
	}
	process, err := strconv.Atoi(processOf(job.t, hostname, job.namespace, protocol.Path+"\x00launch\x00"))
	if err != nil {
		job.t.Fatal(err)
	}
	return process
}

func leaderLease(t *testing.T) (*coordinationv1.Lease, error) {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{}
	err = api.Get(t.Context(), client.ObjectKey{Namespace: "trireme-system", Name: "trireme-leader"}, lease)
	return lease, err
}

func leaderPod(t *testing.T) string {
	t.Helper()
	lease, err := leaderLease(t)
	if err != nil {
		t.Fatal(err)
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod
}

// waitUntilWell waits until every component answers, every pod of ours is ready, an
// operator leads and webhooks are answered.
func waitUntilWell(t *testing.T) {
	t.Helper()
	eventually.SucceedsWithin(t, recovery, "the cluster is well", func() error {
		for _, line := range []string{
			"bin/cluster status",
			"bin/cluster kubectl rollout status --timeout=1s --namespace trireme-system deployment/trireme-operator",
			"bin/cluster kubectl rollout status --timeout=1s --namespace trireme-system deployment/trireme-server",
		} {
			if output, err := shell(line); err != nil {
				return fmt.Errorf("%s: %w: %s", line, err, output)
			}
		}
		lease, err := leaderLease(t)
		if err != nil {
			return err
		}
		if age := time.Since(lease.Spec.RenewTime.Time); age > 4*time.Second {
			return fmt.Errorf("nobody has led for %s", age)
		}
		return answersAdmission(t)
	})
}

// answersAdmission asks often enough that every replica is asked.
func answersAdmission(t *testing.T) error {
	api, err := jobClient()
	if err != nil {
		return err
	}
	for range 4 {
		for _, object := range both(2, allreduce) {
			object.SetNamespace("default")
			object.SetGenerateName("asked-")
			if trainJob, is := object.(*v2alpha1.TrainJob); is {
				trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: "mpi-openmpi-distributed"}
			}
			if err := api.Create(t.Context(), object, client.DryRunAll); err != nil {
				return err
			}
		}
	}
	return nil
}

// wantTruth waits for a job's end, and fails unless it is what has happened: its ranks
// have run once and have the sum, one launcher was there, and the job says so.
func (job *actor) wantTruth(at moment, hasLog bool) {
	job.t.Helper()
	name := job.object.GetName()
	if at == fails {
		job.fails(training.FailureTraining, "exit")
	} else if ended := job.succeeds(); ended.FailureReason != "" || ended.FailureMessage != "" {
		job.t.Errorf("%s has ended well, and says %s: %s", name, ended.FailureReason, ended.FailureMessage)
	}
	if job.begun() != 1 {
		job.t.Errorf("when %s: %s has begun %d times\n%s", at, name, job.begun(), job.describe())
	}
	if sum, err := os.ReadFile(filepath.Join(job.stage.directory, name+".sum")); err != nil || string(sum) != "3" {
		job.t.Errorf("when %s: the sum of %s is %q: %v", at, name, sum, err)
	}
	if log := job.log(); hasLog && strings.Count(log, sumOfRanks) != 1 {
		job.t.Errorf("when %s: the launcher of %s does not say %q once:\n%s", at, name, sumOfRanks, log)
	}
	job.wantClean(at)
	for _, fault := range job.stage.sighted.faultsOf(name, at == fails) {
		job.t.Errorf("when %s: %s %s\n%s", at, name, fault, job.describe())
	}
}

// wantClean waits until nothing is left but the launcher's pod, which has the log.
func (job *actor) wantClean(at moment) {
	job.t.Helper()
	eventually.SucceedsWithin(job.t, recovery, fmt.Sprintf("when %s: workers and keys of %s are gone, the launcher's pod stays", at, job.object.GetName()), func() error {
		var secrets corev1.SecretList
		if err := job.client.List(job.t.Context(), &secrets, client.InNamespace(job.namespace), client.MatchingLabels{training.LabelJobName: job.object.GetName()}); err != nil {
			return err
		}
		workers, launchers := job.pods(training.RoleWorker), job.pods(training.RoleLauncher)
		if len(secrets.Items) != 0 || len(workers) != 0 || len(launchers) != 1 || terminated(&launchers[0]) == nil {
			return fmt.Errorf("%d Secrets, %d workers, %d launchers are left\n%s", len(secrets.Items), len(workers), len(launchers), job.describe())
		}
		return nil
	})
}

// wantOwners fails if something is left that nobody owns, or whose owner is gone.
func (stage *stage) wantOwners() {
	stage.t.Helper()
	eventually.SucceedsWithin(stage.t, recovery, "all that is left has an owner", func() error {
		there := map[types.UID]bool{}
		var found []unstructured.Unstructured
		for _, kind := range []struct{ version, kind string }{
			{"kubeflow.org/v2beta1", "MPIJob"}, {"kubeflow.org/v2alpha1", "TrainJob"}, {"jobset.x-k8s.io/v1alpha2", "JobSet"}, {"batch/v1", "Job"}, {"v1", "Pod"},
			{"v1", "Service"}, {"v1", "ConfigMap"}, {"v1", "Secret"}, {"apps/v1", "ControllerRevision"}, {"networking.k8s.io/v1", "NetworkPolicy"},
		} {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(kind.version)
			list.SetKind(kind.kind + "List")
			if err := stage.client.List(stage.t.Context(), list, client.InNamespace(stage.namespace)); err != nil {
				return err
			}
			for _, object := range list.Items {
				there[object.GetUID()] = true
				if kind.kind != "MPIJob" && kind.kind != "TrainJob" && object.GetName() != "kube-root-ca.crt" {
					found = append(found, object)
				}
			}
		}
		for _, object := range found {
			// Jobs share the snapshot of a runtime.
			if _, isSnapshot := object.GetLabels()[training.LabelRuntimeDigest]; isSnapshot {
				continue
			}
			if owner := metav1.GetControllerOf(&object); owner == nil || !there[owner.UID] {
				return fmt.Errorf("%s %s belongs to %v", object.GetKind(), object.GetName(), owner)
			}
		}
		return nil
	})
}

// sighted is what a watcher has seen of jobs. It goes on when the API server is back.
type sighted struct {
	mutex     sync.Mutex
	launchers map[string]map[types.UID]bool
	pods      map[string]chan struct{}
	faults    map[string][]string
	// reasons are the first reasons of a failure that jobs gave.
	reasons map[string]training.FailureReason
}

func watchAll(t *testing.T, namespace string) *sighted {
	t.Helper()
	config, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	all, err := cache.New(config, cache.Options{Scheme: operator.Scheme(), DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		t.Fatal(err)
	}
	// It would tell of each watch that ends with the API server.
	log.SetLogger(logr.Discard())
	seen := &sighted{
		launchers: map[string]map[types.UID]bool{}, pods: map[string]chan struct{}{}, faults: map[string][]string{}, reasons: map[string]training.FailureReason{},
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	go func() { _ = all.Start(ctx) }()
	for _, object := range []client.Object{&corev1.Pod{}, &v2beta1.MPIJob{}, &v2alpha1.TrainJob{}} {
		informer, err := all.GetInformer(ctx, object)
		if err == nil {
			_, err = informer.AddEventHandler(informers.ResourceEventHandlerFuncs{
				AddFunc: func(object any) { seen.note(nil, object.(client.Object)) },
				UpdateFunc: func(before, after any) {
					seen.note(before.(client.Object), after.(client.Object))
				},
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return seen
}

func (seen *sighted) note(before, after client.Object) {
	seen.mutex.Lock()
	defer seen.mutex.Unlock()
	if pod, is := after.(*corev1.Pod); is {
		seen.notePod(pod)
		return
	}
	name, now := after.GetName(), progressOf(after)
	if now.FailureReason != "" && seen.reasons[name] == "" {
		seen.reasons[name] = now.FailureReason
	}
	if before == nil {
		return
	}
	if was := progressOf(before); isFinished(was) && was.Phase != now.Phase {
		seen.faults[name] = append(seen.faults[name], fmt.Sprintf("was %s and became %s", was.Phase, now.Phase))
	}
}

func (seen *sighted) notePod(pod *corev1.Pod) {
	name := pod.Labels[training.LabelJobName]
	if pod.Labels[training.LabelReplicaType] == training.RoleLauncher {
		if seen.launchers[name] == nil {
			seen.launchers[name] = map[types.UID]bool{}
		}
		seen.launchers[name][pod.UID] = true
	}
	if first := seen.firstPod(name); !isClosed(first) {
		close(first)
	}
}

func (seen *sighted) firstPod(name string) chan struct{} {
	if seen.pods[name] == nil {
		seen.pods[name] = make(chan struct{})
	}
	return seen.pods[name]
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// wait returns when a job has a pod.
func (seen *sighted) wait(name string) {
	seen.mutex.Lock()
	first := seen.firstPod(name)
	seen.mutex.Unlock()
	_ = await(first, "it has a pod")
}

// faultsOf are what must not have been seen of a job.
func (seen *sighted) faultsOf(name string, mayFail bool) []string {
	seen.mutex.Lock()
	defer seen.mutex.Unlock()
	found := slices.Clone(seen.faults[name])
	if count := len(seen.launchers[name]); count != 1 {
		found = append(found, fmt.Sprintf("has had %d launchers", count))
	}
	if reason := seen.reasons[name]; reason != "" && (!mayFail || reason != training.FailureTraining) {
		found = append(found, fmt.Sprintf("has said that it failed: %s", reason))
	}
	return found
}

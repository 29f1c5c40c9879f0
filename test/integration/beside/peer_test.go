// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	upstream "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// isThorough: mpi-operator is its real program, which takes minutes to build. Otherwise
// the test plays the part of it that matters here.
func isThorough() bool { return os.Getenv("THOROUGH") != "" }

// startPeer starts mpi-operator, and returns how to stop it.
func (cluster *cluster) startPeer(t *testing.T) (stop func()) {
	t.Helper()
	if isThorough() {
		stop = startProgram(t, cluster.peerConfig)
	} else {
		stop = startPlayed(t, cluster.peer)
	}
	stop = sync.OnceFunc(stop)
	t.Cleanup(stop)
	return stop
}

// startProgram runs the real mpi-operator.
func startProgram(t *testing.T, kubeconfig []byte) (stop func()) {
	t.Helper()
	log := &deployed.Lines{}
	program := filepath.Join(deployed.Repository(), "bin/peers/mpi-operator")
	command := exec.Command(program, "-alsologtostderr", "--lock-namespace="+peerNamespace)
	command.Env = append(os.Environ(), "KUBECONFIG="+deployed.Write(t, "mpi-operator", kubeconfig))
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatalf("%v; make bin/peers/mpi-operator builds it", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	eventually.Succeeds(t, "mpi-operator is ready", func() error {
		if len(ended) > 0 {
			t.Fatalf("mpi-operator ended:\n%s", log)
		}
		response, err := http.Get("http://localhost:8080/healthz")
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	return func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = command.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("mpi-operator:\n%s", log)
		}
	}
}

// played does what mpi-operator v0.8.2 does with the jobs that it runs: workers,
// launcher, status. It has mpi-operator's types, and with them its loss of fields.
type played struct {
	client client.Client
}

func startPlayed(t *testing.T, connection *rest.Config) (stop func()) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, upstream.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	connected, err := client.New(connection, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	peer := &played{client: connected}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		// It tries again, as mpi-operator does: a policy that was just replaced refuses its pods
		// for a moment.
		var last error
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			if err := peer.sync(ctx); ctx.Err() == nil {
				last = err
			}
		}
		ended <- last
	}()
	return func() {
		cancel()
		if last := <-ended; last != nil {
			t.Errorf("mpi-operator: %v", last)
		}
	}
}

func (peer *played) sync(ctx context.Context) error {
	var jobs upstream.MPIJobList
	if err := peer.client.List(ctx, &jobs); err != nil {
		return err
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		managedBy := job.Spec.RunPolicy.ManagedBy
		if managedBy != nil && *managedBy != upstream.KubeflowJobController || job.DeletionTimestamp != nil {
			continue
		}
		if err := peer.run(ctx, job); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("job %s: %w", job.Name, err)
		}
	}
	return nil
}

func (peer *played) run(ctx context.Context, job *upstream.MPIJob) error {
	for _, condition := range job.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == upstream.JobSucceeded || condition.Type == upstream.JobFailed) && job.Status.CompletionTime != nil {
			if policy := job.Spec.RunPolicy.CleanPodPolicy; policy != nil && *policy != upstream.CleanPodPolicyNone {
				return peer.client.Status().Update(ctx, job)
			}
			return nil
		}
	}
	owner := []metav1.OwnerReference{*metav1.NewControllerRef(job, upstream.SchemeGroupVersion.WithKind("MPIJob"))}
	labels := map[string]string{upstream.OperatorNameLabel: upstream.OperatorName, upstream.JobNameLabel: job.Name}
	objects := []client.Object{}
	for i := range *job.Spec.MPIReplicaSpecs[upstream.MPIReplicaTypeWorker].Replicas {
		objects = append(objects, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: fmt.Sprintf("%s-worker-%d", job.Name, i), Labels: labels, OwnerReferences: owner},
			Spec:       job.Spec.MPIReplicaSpecs[upstream.MPIReplicaTypeWorker].Template.Spec,
		})
	}
	template := job.Spec.MPIReplicaSpecs[upstream.MPIReplicaTypeLauncher].Template.DeepCopy()
	template.Labels, template.Spec.RestartPolicy = labels, corev1.RestartPolicyNever
	objects = append(objects, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: job.Name + "-launcher", Labels: labels, OwnerReferences: owner},
		Spec:       batchv1.JobSpec{Template: *template},
	})
	for _, object := range objects {
		if err := client.IgnoreAlreadyExists(peer.client.Create(ctx, object)); err != nil {
			return err
		}
	}
	if len(job.Status.Conditions) > 0 {
		return nil
	}
	now := metav1.Now()
	job.Status.StartTime = &now
	for _, kind := range []upstream.JobConditionType{upstream.JobCreated, upstream.JobRunning} {
		job.Status.Conditions = append(job.Status.Conditions, upstream.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: "Played", Message: "played", LastUpdateTime: now, LastTransitionTime: now,
		})
	}
	return peer.client.Status().Update(ctx, job)
}

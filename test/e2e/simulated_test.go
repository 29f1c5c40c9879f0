// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/operator"
)

// Simulated nodes are what makes many pods possible on one machine. Nothing runs
// in their pods: no agent, no report.
const (
	simulatedNode = "trireme.local/fake-node"
	simulatedRun  = "trireme.local/simulated-run"
	simulatedGPUs = 8
)

// forever is a launcher that runs until it is deleted.
const forever time.Duration = 0

// simulateNodes makes the cluster have this many simulated nodes, and none when
// the test has ended.
func simulateNodes(t testing.TB, count int) {
	t.Helper()
	needsLocalCluster(t, "nodes are simulated")
	t.Cleanup(func() { changeNodes(t, 0) })
	changeNodes(t, count)
}

// changeNodes makes the cluster have this many simulated nodes of eight GPUs.
func changeNodes(t testing.TB, count int) {
	t.Helper()
	needsLocalCluster(t, "nodes are simulated")
	if output, err := shell(fmt.Sprintf("bin/cluster up --fake-nodes %d --fake-node-gpus %d", count, simulatedGPUs)); err != nil {
		t.Fatalf("simulate %d nodes: %v\n%s", count, err, output)
	}
}

// simulate makes the pods of a template simulated ones, which end well after a
// while.
func simulate(template *corev1.PodTemplateSpec, run time.Duration) {
	template.Spec.NodeSelector = map[string]string{simulatedNode: "true"}
	template.Spec.Tolerations = []corev1.Toleration{{Key: "kwok.x-k8s.io/node", Operator: corev1.TolerationOpExists}}
	if run != forever {
		template.Annotations = map[string]string{simulatedRun: run.String()}
	}
}

// simulatedMPIJob is an MPIJob whose launcher ends well after a while.
func simulatedMPIJob(name string, workers int32, run time.Duration, worker corev1.ResourceList) *v2beta1.MPIJob {
	mpiJob := failFast(implementations[1].job(workers, allreduce))
	mpiJob.Name = name
	launcher, workerSpec := mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher], mpiJob.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]
	simulate(&launcher.Template, run)
	simulate(&workerSpec.Template, forever)
	setResources(mpiJob, worker)
	return mpiJob
}

// simulatedTrainJob is a TrainJob whose launcher ends well after a while. It
// takes the runtime that simulatedRuntime makes.
func simulatedTrainJob(name string, workers int32, run time.Duration, worker corev1.ResourceList) *v2alpha1.TrainJob {
	trainJob := implementations[1].trainJob(workers, allreduce)
	trainJob.Name = name
	trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: runtimeName(run)}
	setResources(trainJob, worker)
	return trainJob
}

func runtimeName(run time.Duration) string { return "simulated-" + run.String() }

// simulatedRuntime is a runtime whose pods are simulated ones.
func simulatedRuntime(namespace string, run time.Duration) *v2alpha1.TrainingRuntime {
	runtime := runtimeFor(namespace, v2alpha1.MPIImplementationOpenMPI)
	runtime.Name = runtimeName(run)
	roles := runtime.Spec.Template.Spec.ReplicatedJobs
	simulate(&roles[0].Template, run)
	simulate(&roles[1].Template, forever)
	return runtime
}

// fastClient is a client that waits for nothing but the API server.
var fastClient = sync.OnceValues(func() (client.WithWatch, error) {
	config, err := connection()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0
	config.WarningHandler = rest.NoWarnings{}
	return client.NewWithWatch(config, client.Options{Scheme: operator.Scheme()})
})

// crowd is a namespace for many simulated jobs of both kinds.
type crowd struct {
	t         testing.TB
	client    client.WithWatch
	namespace string
}

// newCrowd makes the namespace, with runtimes whose launchers run for so long.
// Its pods are gone before the nodes go that were simulated earlier: nobody would
// end them.
func newCrowd(t testing.TB, runs ...time.Duration) *crowd {
	t.Helper()
	api, err := fastClient()
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "crowd-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := api.Create(context.Background(), namespace); err != nil {
		t.Fatal(err)
	}
	crowd := &crowd{t: t, client: api, namespace: namespace.Name}
	t.Cleanup(crowd.leave)
	for _, run := range runs {
		if err := api.Create(context.Background(), simulatedRuntime(namespace.Name, run)); err != nil {
			t.Fatal(err)
		}
	}
	crowd.until("service account", time.Minute, func() error {
		return api.Get(context.Background(), client.ObjectKey{Namespace: namespace.Name, Name: "default"}, &corev1.ServiceAccount{})
	})
	return crowd
}

// leave removes everything, and waits until it is gone. Jobs go first: a
// namespace deletes pods before anything else, and a simulated pod of a batch Job
// that is still there never goes, because nobody says that it has ended.
func (crowd *crowd) leave() {
	var jobs []client.Object
	if err := crowd.each(func(job client.Object) { jobs = append(jobs, job) }); err != nil {
		crowd.t.Errorf("list the jobs in %s: %v", crowd.namespace, err)
	}
	crowd.inParallel(jobs, func(job client.Object) error {
		return client.IgnoreNotFound(crowd.client.Delete(context.Background(), job, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	})
	crowd.until("the pods in "+crowd.namespace+" are gone", 5*time.Minute, func() error {
		var pods corev1.PodList
		if err := crowd.client.List(context.Background(), &pods, client.InNamespace(crowd.namespace)); err != nil || len(pods.Items) == 0 {
			return err
		}
		return fmt.Errorf("there are %d", len(pods.Items))
	})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: crowd.namespace}}
	if err := crowd.client.Delete(context.Background(), namespace); err != nil {
		crowd.t.Errorf("delete namespace %s: %v", crowd.namespace, err)
	}
}

// until tries until something holds.
func (crowd *crowd) until(what string, patience time.Duration, holds func() error) {
	crowd.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			crowd.t.Fatalf("%s: not after %s: %v", what, patience, err)
		}
		// Not oftener: a list of a thousand jobs costs the API server more than one of
		// them does.
		time.Sleep(2 * time.Second)
	}
}

// submitAll creates jobs.
func (crowd *crowd) submitAll(jobs []client.Object) {
	crowd.t.Helper()
	crowd.inParallel(jobs, func(job client.Object) error {
		job.SetNamespace(crowd.namespace)
		return crowd.client.Create(context.Background(), job)
	})
	if crowd.t.Failed() {
		crowd.t.FailNow()
	}
}

// inParallel does something to each job, to sixteen of them at a time.
func (crowd *crowd) inParallel(jobs []client.Object, do func(client.Object) error) {
	crowd.t.Helper()
	next := make(chan client.Object)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for job := range next {
				if err := do(job); err != nil {
					crowd.t.Errorf("%T %s: %v", job, job.GetName(), err)
				}
			}
		})
	}
	for _, job := range jobs {
		next <- job
	}
	close(next)
	workers.Wait()
}

// each calls for every job that there is.
func (crowd *crowd) each(visit func(job client.Object)) error {
	var mpiJobs v2beta1.MPIJobList
	if err := crowd.client.List(context.Background(), &mpiJobs, client.InNamespace(crowd.namespace)); err != nil {
		return err
	}
	for i := range mpiJobs.Items {
		visit(&mpiJobs.Items[i])
	}
	var trainJobs v2alpha1.TrainJobList
	if err := crowd.client.List(context.Background(), &trainJobs, client.InNamespace(crowd.namespace)); err != nil {
		return err
	}
	for i := range trainJobs.Items {
		visit(&trainJobs.Items[i])
	}
	return nil
}

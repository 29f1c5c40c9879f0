// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	products "github.com/trireme-mpi/trireme/internal/operator"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

var (
	memoryMPIJobs   = flag.Int("mpijobs", 500, "suspended MPIJobs of 1 MiB that BenchmarkMemory creates")
	memoryTrainJobs = flag.Int("trainjobs", 2000, "suspended TrainJobs of a 1 MiB runtime that BenchmarkMemory creates")
	memoryUsers     = flag.Int("users", 10, "users who list all jobs at the same time in BenchmarkMemory")
)

// etcdQuota has room for every version of every job.
const etcdQuota = 12 << 30

// BenchmarkMemory measures what operator and server need for large jobs that are at
// rest, as programs, with the settings that they are shipped with. Goal: half of the
// memory limits that they are shipped with.
func BenchmarkMemory(b *testing.B) {
	cluster := startCluster(b, func(environment *envtest.Environment) {
		environment.CRDDirectoryPaths = append(environment.CRDDirectoryPaths, deployed.JobSetCRDs(b))
		environment.ControlPlane.Etcd = &envtest.Etcd{}
		environment.ControlPlane.Etcd.Configure().Set("quota-backend-bytes", strconv.Itoa(etcdQuota)).Set("snapshot-count", "1000")
	})
	create(b, cluster.admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployed.Namespace}})
	create(b, cluster.admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "many"}})
	anything, err := client.New(cluster.environment.Config, client.Options{Scheme: products.Scheme()})
	if err != nil {
		b.Fatal(err)
	}
	operator, server := shipped(b, "operator"), shipped(b, "server")
	// Both start with the same variable, as they are built by this program.
	b.Setenv("GOMEMLIMIT", operator.memoryLimit)

	// A machine that is busy with large jobs would lose its Lease, and nobody else runs.
	settings := deployed.Settings(b, func(settings *config.Config) { settings.LeaderElection.Enabled = false })
	deployed.InstallWebhooks(b, anything, settings.Webhook.Port)
	running := deployed.Start(b, cluster.environment, settings)
	running.WaitUntilReady(b)
	began := time.Now()
	cluster.fillWithLarge(b)
	b.Logf("%d MPIJobs and %d TrainJobs are suspended after %s", *memoryMPIJobs, *memoryTrainJobs, time.Since(began).Round(time.Second))
	untilIdle(b, running.PID())
	operator.report(b, "created", running.PID())
	running.Stop(b)

	running = deployed.Start(b, cluster.environment, settings)
	patiently(b, func() error { return running.Ready(b) })
	untilIdle(b, running.PID())
	operator.report(b, "restarted", running.PID())

	program := cluster.startProgram(b, []string{"GOMEMLIMIT=" + server.memoryLimit})
	untilIdle(b, program.process.Pid)
	server.report(b, "started", program.process.Pid)
	began = time.Now()
	listed := cluster.listAll(b, program)
	b.Logf("%d users listed %d jobs in %s", *memoryUsers, listed, time.Since(began).Round(time.Second))
	server.report(b, "listed", program.process.Pid)
	operator.report(b, "listed", running.PID())
	b.ReportMetric(0, "ns/op")
}

// deployment is what a program is shipped with.
type deployment struct {
	name string
	// limit of its container, in bytes, and Go's own.
	limit       int64
	memoryLimit string
}

func shipped(b *testing.B, name string) *deployment {
	b.Helper()
	read := &appsv1.Deployment{}
	deployed.Manifest(b, "Deployment/trireme-"+name, read)
	container := read.Spec.Template.Spec.Containers[0]
	made := &deployment{name: name, limit: container.Resources.Limits.Memory().Value()}
	for _, variable := range container.Env {
		if variable.Name == "GOMEMLIMIT" {
			made.memoryLimit = variable.Value
		}
	}
	return made
}

// report tells how much memory a process has, and has had.
func (deployment *deployment) report(b *testing.B, moment string, pid int) {
	b.Helper()
	now, peak := deployed.Memory(b, pid)
	share := float64(peak) / float64(deployment.limit)
	b.Logf("%-8s %-9s %5d MiB, peak %5d MiB of %d MiB: %3.0f %%", deployment.name, moment, now>>20, peak>>20, deployment.limit>>20, 100*share)
	b.ReportMetric(float64(peak>>20), deployment.name+"-"+moment+"-peak-MiB")
	if share > 0.5 {
		b.Errorf("the %s needs more than half of its limit", deployment.name)
	}
}

// longest is how long a machine may take that is busy with half a gigabyte of jobs.
const longest = 20 * time.Minute

func patiently(b *testing.B, holds func() error) {
	b.Helper()
	for deadline := time.Now().Add(longest); ; time.Sleep(time.Second) {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.Fatal(err)
		}
	}
}

// untilIdle waits until a process has done next to nothing for a while.
func untilIdle(b *testing.B, pid int) {
	b.Helper()
	const while = 4 * time.Second
	for deadline := time.Now().Add(longest); ; {
		before := deployed.CPUTime(b, pid)
		time.Sleep(while)
		if deployed.CPUTime(b, pid)-before < while/20 {
			return
		}
		if time.Now().After(deadline) {
			b.Fatal("the process does not come to rest")
		}
	}
}

// fillWithLarge creates the jobs, and waits until the operator has processed them.
func (cluster *cluster) fillWithLarge(b *testing.B) {
	b.Helper()
	made := &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: player.RuntimeSpec()}
	worker := &made.Spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0]
	worker.Env = largeJob(b, "", "").Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0].Env
	eventually.Succeeds(b, "the runtime is accepted", func() error { return cluster.admin.Create(b.Context(), made) })
	writing, ctx := errgroup.WithContext(b.Context())
	writing.SetLimit(4)
	for number := range *memoryMPIJobs {
		writing.Go(func() error {
			job := player.MPIJob(fmt.Sprintf("mpijob-%04d", number))
			job.Namespace, job.Spec.RunPolicy.Suspend = "many", new(true)
			job.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker].Template.Spec.Containers[0].Env = worker.Env
			return createPatiently(ctx, cluster.admin, job)
		})
	}
	for number := range *memoryTrainJobs {
		writing.Go(func() error {
			return createPatiently(ctx, cluster.admin, player.TrainJob("many", fmt.Sprintf("trainjob-%04d", number), func(job *v2alpha1.TrainJob) {
				job.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindCluster, Name: made.Name}
				job.Spec.Suspend = new(true)
			}))
		})
	}
	if err := writing.Wait(); err != nil {
		b.Fatal(err)
	}
	cluster.untilSuspended(b)
}

// createPatiently: the webhook may be busy for a moment.
func createPatiently(ctx context.Context, by client.Client, object client.Object) error {
	var err error
	for range 3 {
		if err = by.Create(ctx, object); err == nil || ctx.Err() != nil || apierrors.IsAlreadyExists(err) {
			return ctx.Err()
		}
		time.Sleep(time.Second)
	}
	return err
}

// untilSuspended reads jobs in small pages: they are large for this program, too.
func (cluster *cluster) untilSuspended(b *testing.B) {
	b.Helper()
	for deadline := time.Now().Add(longest); ; time.Sleep(2 * time.Second) {
		waiting := 0
		for _, kind := range []string{"mpijobs", "trainjobs"} {
			for next, more := "", true; more; more = next != "" {
				table, err := cluster.table(b.Context(), kind, next)
				if err != nil {
					b.Fatal(err)
				}
				waiting += table.waiting
				next = table.next
			}
		}
		if waiting == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d jobs are not suspended", waiting)
		}
	}
}

type jobsTable struct {
	waiting int
	next    string
}

// table reads a page of jobs as kubectl shows them: without their specs.
func (cluster *cluster) table(ctx context.Context, kind, next string) (*jobsTable, error) {
	var read metav1.Table
	content, err := cluster.typed.CoreV1().RESTClient().Get().AbsPath("/apis/kubeflow.org/"+versions[kind]+"/namespaces/many/"+kind).
		Param("limit", "50").Param("continue", next).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(content, &read); err != nil {
		return nil, err
	}
	phase := -1
	for i, column := range read.ColumnDefinitions {
		if column.Name == "State" {
			phase = i
		}
	}
	if phase < 0 {
		return nil, errors.New("the table has no state")
	}
	found := &jobsTable{next: read.Continue}
	for _, row := range read.Rows {
		if row.Cells[phase] != string(training.PhasePending) {
			found.waiting++
		}
	}
	return found, nil
}

var versions = map[string]string{"mpijobs": "v2beta1", "trainjobs": "v2alpha1"}

// listAll has all users list all jobs at the same time, page by page, and returns how
// many each of them has seen.
func (cluster *cluster) listAll(b *testing.B, program *program) int {
	b.Helper()
	var users []*person
	for number := range *memoryUsers {
		users = append(users, cluster.viewer(b, fmt.Sprintf("viewer-%d", number)))
	}
	var listing errgroup.Group
	var seen atomic.Int64
	for _, user := range users {
		measured := &measured{program: program, reader: user}
		listing.Go(func() error {
			for _, kind := range []string{"mpijobs", "trainjobs"} {
				count, err := measured.listAll(b, kind)
				seen.Add(int64(count))
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := listing.Wait(); err != nil {
		b.Fatal(err)
	}
	if want := int64(len(users) * (*memoryMPIJobs + *memoryTrainJobs)); seen.Load() != want {
		b.Errorf("%d jobs were listed, want %d", seen.Load(), want)
	}
	return int(seen.Load()) / len(users)
}

func (measured *measured) listAll(b *testing.B, kind string) (count int, err error) {
	for next, more := "", true; more; more = next != "" {
		path := "/api/v1/namespaces/many/" + kind + "?limit=1000&continue=" + url.QueryEscape(next)
		body, err := measured.readPatiently(path)
		if err != nil {
			return count, err
		}
		found := parsed[page](b, body)
		count += len(found.Items)
		next = found.Metadata.Continue + found.Continue
	}
	return count, nil
}

// readPatiently asks again while the server says that it has too much to do.
func (measured *measured) readPatiently(path string) (body string, err error) {
	for range 30 {
		if body, err = measured.read(path); err == nil || !strings.Contains(err.Error(), "429") {
			break
		}
		time.Sleep(time.Second)
	}
	return body, err
}

// viewer is somebody who may read the jobs of all namespaces.
func (cluster *cluster) viewer(b *testing.B, name string) *person {
	b.Helper()
	made := cluster.person(b, name)
	for _, role := range []string{"mpijob-viewer", "trainjob-viewer"} {
		_, err := cluster.typed.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: made.namespace, Name: made.name}},
		}, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
	}
	return made
}

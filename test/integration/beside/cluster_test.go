// SPDX-License-Identifier: Apache-2.0

// Package beside tests Trireme next to mpi-operator: both operators, on a real API
// server, with the webhooks, policies and roles of the chart.
package beside

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/charts"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/operator/setup"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

const (
	peerNamespace = "mpi-operator"
	// unadmitted is a namespace whose jobs our webhooks do not see.
	unadmitted = "unadmitted"
)

// cluster is an API server on which mpi-operator is installed.
type cluster struct {
	*player.Player
	environment *envtest.Environment
	admin       client.WithWatch
	peer        *rest.Config
	peerConfig  []byte
	operator    *deployed.Operator
}

// startCluster starts an API server with the CRD of mpi-operator.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/mpi-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(strings.TrimSpace(string(module)), "manifests/base/kubeflow.org_mpijobs.yaml")
	environment := &envtest.Environment{CRDDirectoryPaths: []string{theirs}, ErrorIfCRDPathMissing: true}
	controlplane.Start(t, environment)
	cluster := &cluster{environment: environment, admin: player.Connect(t, environment.Config)}
	cluster.Player = &player.Player{TB: t, Client: cluster.admin, Namespace: "default"}
	for name, labels := range map[string]map[string]string{
		deployed.Namespace: nil, peerNamespace: nil, unadmitted: {"training.kubeflow.org/admission": "disabled"},
	} {
		cluster.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	user, err := environment.AddUser(envtest.User{
		Name: "system:serviceaccount:" + peerNamespace + ":mpi-operator", Groups: []string{"system:masters", "system:serviceaccounts", "system:authenticated"},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cluster.peer = user.Config()
	if cluster.peerConfig, err = user.KubeConfig(); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// install installs Trireme for a share of the MPIJobs, or changes the share, as helm
// upgrade does: CRDs, webhooks, policy, roles, operator.
func (cluster *cluster) install(t *testing.T, share job.Share) {
	t.Helper()
	if cluster.operator != nil {
		cluster.operator.Stop(t)
	}
	work := setup.Setup{Client: cluster.admin, Output: io.Discard, Pause: 10 * time.Millisecond, Manage: share}
	if share == job.ShareAll {
		if err := work.RefuseJobsOfMPIOperator(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := work.UpdateCRDs(t.Context(), charts.CRDs()); err != nil {
		t.Fatal(err)
	}
	settings := deployed.Settings(t, func(settings *config.Config) { settings.MPIJobs.Manage = share })
	values := []string{"platform=kubernetes", "mpiJobs.manage=" + strings.ToLower(string(share))}
	if share != job.ShareAll {
		for _, role := range deployed.Render(t, values, "ClusterRole*/trireme-operator-naming") {
			deployed.Replace(t, cluster.admin, role)
		}
	}
	cluster.createIfMissing(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: "trireme-operator"}})
	for _, policy := range deployed.Render(t, values, "ValidatingAdmissionPolicy*/trireme-children") {
		deployed.Replace(t, cluster.admin, policy)
	}
	deployed.InstallWebhooksOf(t, cluster.admin, settings.Webhook.Port, deployed.Render(t, values, "*WebhookConfiguration/trireme"))
	cluster.operator = deployed.Start(t, cluster.environment, settings)
	running := cluster.operator
	running.WaitUntilReady(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator with share %s:\n%s", share, running.Log)
		}
	})
	// The API server learns of webhooks and policies a moment later.
	eventually.Succeeds(t, "the webhooks answer", func() error {
		probe := player.MPIJob("probe", managedBy(training.ManagedByTrireme), func(job *v2beta1.MPIJob) { job.Spec.SlotsPerWorker = new(int32(99)) })
		probe.Namespace = "default"
		err := cluster.admin.Create(context.Background(), probe, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "slotsPerWorker must be between") {
			return fmt.Errorf("a job that is wrong: %w", err)
		}
		return nil
	})
}

func (cluster *cluster) create(object client.Object) {
	cluster.Helper()
	if err := cluster.admin.Create(context.Background(), object); err != nil {
		cluster.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

func (cluster *cluster) createIfMissing(object client.Object) {
	cluster.Helper()
	if err := client.IgnoreAlreadyExists(cluster.admin.Create(context.Background(), object)); err != nil {
		cluster.Fatalf("create %T %s: %v", object, object.GetName(), err)
	}
}

func managedBy(name string) func(*v2beta1.MPIJob) {
	return func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.ManagedBy = &name }
}

// job creates an MPIJob.
func (cluster *cluster) job(name string, change ...func(*v2beta1.MPIJob)) *v2beta1.MPIJob {
	cluster.Helper()
	created := player.MPIJob(name, change...)
	if created.Namespace == "" {
		created.Namespace = "default"
	}
	cluster.create(created)
	return created
}

func in(namespace string) func(*v2beta1.MPIJob) {
	return func(job *v2beta1.MPIJob) { job.Namespace = namespace }
}

// Who has created the pods or the launcher of a job.
const (
	trireme     = "Trireme"
	mpiOperator = "mpi-operator"
)

// creators is how many pods and launchers each operator has created for a job. Nothing
// on this cluster deletes them with their job.
func (cluster *cluster) creators(owner *v2beta1.MPIJob) map[string]int {
	cluster.Helper()
	found := map[string]int{}
	var pods corev1.PodList
	var launchers batchv1.JobList
	for _, list := range []client.ObjectList{&pods, &launchers} {
		if err := cluster.admin.List(context.Background(), list, client.InNamespace(owner.Namespace)); err != nil {
			cluster.Fatal(err)
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		controller := metav1.GetControllerOf(pod)
		isOfJob := controller != nil && controller.UID == owner.UID || pod.Labels[training.LabelJobUID] == string(owner.UID)
		// mpi-operator does not have this label, and no one but our operator may set it.
		_, isOurs := pod.Labels[training.LabelJobType]
		switch {
		case isOfJob && isOurs:
			found[trireme]++
		case isOfJob:
			found[mpiOperator]++
		}
	}
	for i := range launchers.Items {
		launcher := &launchers.Items[i]
		if controller := metav1.GetControllerOf(launcher); controller == nil || controller.UID != owner.UID {
			continue
		}
		if launcher.Spec.ManagedBy != nil && *launcher.Spec.ManagedBy == training.ManagedByTrireme {
			found[trireme]++
		} else {
			found[mpiOperator]++
		}
	}
	return found
}

// runBy waits until an operator has started a job.
func (cluster *cluster) runBy(want string, jobs ...*v2beta1.MPIJob) {
	cluster.Helper()
	for _, job := range jobs {
		eventually.Succeeds(cluster, fmt.Sprintf("%s runs %s", want, job.Name), func() error {
			found := cluster.creators(job)
			if err := cluster.admin.Get(context.Background(), client.ObjectKeyFromObject(job), job); err != nil {
				return err
			}
			byTrireme := job.Status.Phase != ""
			if found[want] < 3 || byTrireme != (want == trireme) || len(job.Status.Conditions) == 0 {
				return fmt.Errorf("created by %v, with phase %q and %d conditions", found, job.Status.Phase, len(job.Status.Conditions))
			}
			return nil
		})
	}
}

// onlyRunBy fails the test if the other operator has created anything for a job within a
// moment in which both have seen it.
func (cluster *cluster) onlyRunBy(want string, jobs ...*v2beta1.MPIJob) {
	cluster.Helper()
	cluster.runBy(want, jobs...)
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, job := range jobs {
			for other := range cluster.creators(job) {
				if other != want {
					cluster.Fatalf("%s is run by %s, and %s has created objects for it", job.Name, want, other)
				}
			}
		}
	}
	cluster.runBy(want, jobs...)
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

const (
	measuredJobs       = 10_000
	measuredNamespaces = 10
	// listRequests is how many requests a figure of a list is made of.
	listRequests = 500
	// mixedRate is how many requests a second come, for mixedFor.
	mixedRate = 500
	mixedFor  = 10 * time.Second
)

// BenchmarkREST measures the server's program, with one processor, over TLS, with
// 10,000 jobs in ten namespaces. Goals: a list below 100 ms at p99; 500 requests a
// second of mixed reads.
func BenchmarkREST(b *testing.B) {
	cluster := startCluster(b)
	cluster.fill(b)
	measured := &measured{program: cluster.startProgram(b, []string{"GOMAXPROCS=1"}, "--requests-per-second", "100000", "--burst", "100000"), reader: cluster.reader(b)}
	b.Run("list", measured.lists)
	b.Run("mixed", measured.mixed)
}

// fill makes the jobs. A quarter each waits, runs, has succeeded and has failed.
func (cluster *cluster) fill(b *testing.B) {
	b.Helper()
	for number := range measuredNamespaces {
		create(b, cluster.admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%d", number)}})
	}
	var writing errgroup.Group
	writing.SetLimit(16)
	for number := range measuredJobs {
		writing.Go(func() error { return cluster.makeJob(b, number) })
	}
	if err := writing.Wait(); err != nil {
		b.Fatal(err)
	}
}

func (cluster *cluster) makeJob(b *testing.B, number int) error {
	job := &v2beta1.MPIJob{}
	if err := yaml.Unmarshal([]byte(named(jobview.MPIJobs, fmt.Sprintf("job-%05d", number))), job); err != nil {
		return err
	}
	job.Namespace = fmt.Sprintf("team-%d", number%measuredNamespaces)
	job.Labels = map[string]string{"shift": []string{"day", "night"}[number/measuredNamespaces%2]}
	if err := cluster.admin.Create(b.Context(), job); err != nil {
		return err
	}
	job.Status.Phase = []training.Phase{training.PhasePending, training.PhaseRunning, training.PhaseSucceeded, training.PhaseFailed}[number/measuredNamespaces%4]
	if job.Status.Phase == training.PhasePending {
		return nil
	}
	job.Status.StartTime = &metav1.Time{Time: job.CreationTimestamp.Add(time.Duration(number) * time.Second)}
	return cluster.admin.Status().Update(b.Context(), job)
}

// reader is somebody who may read the jobs of all namespaces.
func (cluster *cluster) reader(b *testing.B) *person {
	b.Helper()
	made := cluster.person(b, "reader")
	_, err := cluster.typed.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mpijob-viewer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: made.namespace, Name: made.name}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	return made
}

// program is the server as it is deployed.
type program struct {
	url     string
	process *os.Process
}

func (cluster *cluster) startProgram(b *testing.B, environment []string, arguments ...string) *program {
	b.Helper()
	folder := b.TempDir()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", folder, "./cmd/server")
	build.Dir = deployed.Repository()
	if output, err := build.CombinedOutput(); err != nil {
		b.Fatalf("build the server: %v\n%s", err, output)
	}
	address := fmt.Sprintf("127.0.0.1:%d", deployed.FreePort(b))
	command := exec.Command(filepath.Join(folder, "server"), append([]string{"--address", address, "--probe-address", "", "--operator-namespace", deployed.Namespace,
		"--grace", "0s"}, arguments...)...)
	command.Env = append(append(os.Environ(), environment...), "KUBECONFIG="+deployed.Write(b, "kubeconfig", cluster.serverKubeconfig))
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	started := &program{url: "https://" + address, process: command.Process}
	patiently(b, func() error {
		response, err := insecure.Get(started.url + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", response.Status)
		}
		return nil
	})
	return started
}

// processor is how long the program has been working.
func (program *program) processor(b *testing.B) time.Duration {
	b.Helper()
	return deployed.CPUTime(b, program.process.Pid)
}

// measured is a server that is asked much.
type measured struct {
	program *program
	reader  *person
}

// read asks for a path, and reads the answer.
func (measured *measured) read(path string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, measured.program.url+path, nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+measured.reader.token)
	response, err := insecure.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", path, response.Status, content)
	}
	return string(content), err
}

func (measured *measured) lists(b *testing.B) {
	all := "/api/v1/mpijobs"
	first, err := measured.read(all + "?sort=-creationTime&limit=500")
	if err != nil {
		b.Fatal(err)
	}
	next := url.QueryEscape(parsed[page](b, first).Metadata.Continue)
	for _, list := range []struct{ name, path string }{
		{"first-page", all},
		{"one-namespace", "/api/v1/namespaces/team-3/mpijobs"},
		{"by-status-and-name", all + "?status=Running&sort=name"},
		{"by-labels", all + "?labelSelector=shift%3Dnight"},
		{"newest-first", all + "?sort=-creationTime"},
		{"second-page-of-500", all + "?sort=-creationTime&limit=500&continue=" + next},
		{"all-at-once", all + "?status=Running&search=job&labelSelector=shift%3Dnight&sort=-startTime&limit=1000"},
	} {
		b.Run(list.name, func(b *testing.B) {
			var took []time.Duration
			size := 0
			for b.Loop() {
				for range listRequests {
					began := time.Now()
					body, err := measured.read(list.path)
					if err != nil {
						b.Fatal(err)
					}
					took, size = append(took, time.Since(began)), len(body)
				}
			}
			report(b, took)
			b.ReportMetric(float64(size)/1024, "KB")
		})
	}
}

// mixed sends requests when their time has come, whether or not the ones before are
// answered, as many clients do; each is measured from that time on.
func (measured *measured) mixed(b *testing.B) {
	kinds := []func(number int) string{
		func(number int) string {
			return fmt.Sprintf("/api/v1/namespaces/team-%d/mpijobs/job-%05d", number%measuredNamespaces, number)
		},
		func(number int) string {
			return fmt.Sprintf("/api/v1/namespaces/team-%d/mpijobs?limit=20", number%measuredNamespaces)
		},
		func(number int) string {
			return fmt.Sprintf("/api/v1/namespaces/team-%d/mpijobs/job-%05d/status", number%measuredNamespaces, number)
		},
		func(number int) string {
			return fmt.Sprintf("/api/v1/namespaces/team-%d/mpijobs?status=Running&sort=-creationTime&limit=20", number%measuredNamespaces)
		},
	}
	for b.Loop() {
		total := mixedRate * int(mixedFor/time.Second)
		took := make([]time.Duration, total)
		var failed atomic.Int64
		var asking sync.WaitGroup
		worked, began := measured.program.processor(b), time.Now()
		for number := range total {
			due := began.Add(time.Duration(number) * time.Second / mixedRate)
			time.Sleep(time.Until(due))
			asking.Go(func() {
				if _, err := measured.read(kinds[number%len(kinds)](number)); err != nil {
					failed.Add(1)
				}
				took[number] = time.Since(due)
			})
		}
		asking.Wait()
		b.ReportMetric(float64(total)/time.Since(began).Seconds(), "requests/s")
		b.ReportMetric((measured.program.processor(b) - worked).Seconds(), "CPU-s")
		b.ReportMetric(float64(failed.Load()), "failed")
		report(b, took)
	}
}

// report tells the middle and the slowest of what was measured.
func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(took[len(took)/2])/float64(time.Millisecond), "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100])/float64(time.Millisecond), "p99-ms")
}

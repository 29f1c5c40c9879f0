// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trireme-mpi/trireme/internal/engine/activity"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/diagnosis"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
	enginereports "github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/operator/reports"
)

// reportedBuffer is how many jobs may be due at a time without waiting for the queue.
const reportedBuffer = 1024

// reportPort is the port of this process for reports.
type reportPort struct {
	settings  *config.Config
	namespace string
	address   netip.Addr
	// secrets has the Secret with the CA; nil if something else issues certificates.
	secrets client.Reader
	names   []string
}

// newReportPort returns nil if no reports are received: because they are disabled, or
// because the process is not a pod, which others could reach by its address.
func newReportPort(options Options, secrets client.Reader) (*reportPort, error) {
	settings := options.Config
	if settings.Reports.Port == 0 || options.PodIP == "" {
		return nil, nil
	}
	address, err := netip.ParseAddr(options.PodIP)
	if err != nil {
		return nil, fmt.Errorf("read the pod's own address from POD_IP: %w", err)
	}
	name := fmt.Sprintf("%s.%s.svc", settings.Reports.ServiceName, options.Namespace)
	return &reportPort{settings: settings, namespace: options.Namespace, address: address, secrets: secrets, names: []string{name}}, nil
}

// authority returns the CA's certificate, and its key if the operator issues certificates.
func (rp *reportPort) authority() (certificate, key []byte, err error) {
	if rp.secrets == nil {
		certificate, err = os.ReadFile(filepath.Join(rp.settings.Webhook.CertificateDirectory, caCertificateKey))
		return certificate, nil, err
	}
	var secret corev1.Secret
	if err := rp.secrets.Get(context.Background(), client.ObjectKey{Namespace: rp.namespace, Name: rp.settings.Webhook.SecretName}, &secret); err != nil {
		return nil, nil, fmt.Errorf("read the CA for reports: %w", err)
	}
	if len(secret.Data[caCertificateKey]) == 0 {
		return nil, nil, fmt.Errorf("read the CA for reports: Secret %s/%s does not have it yet", secret.Namespace, secret.Name)
	}
	return secret.Data[caCertificateKey], secret.Data[caPrivateKey], nil
}

// environment is what the plan of a job needs to know; nil while there is no CA.
func (rp *reportPort) environment() *plan.Reports {
	if rp == nil {
		return nil
	}
	certificate, _, err := rp.authority()
	if err != nil {
		ctrl.Log.Error(err, "A job is started without the possibility to report its progress")
		return nil
	}
	return &plan.Reports{
		URL: fmt.Sprintf("https://%s:%d", rp.names[0], rp.settings.Reports.Port), CA: certificate, Namespace: rp.namespace, Port: rp.settings.Reports.Port,
	}
}

// serve makes the leader serve the port.
func (rp *reportPort) serve(manager ctrl.Manager, store *reports.Store, jobs reports.Jobs) error {
	// Reviews have their own rate limit, so that reports cannot slow down jobs.
	connection := rest.CopyConfig(manager.GetConfig())
	connection.QPS, connection.Burst = reports.ReviewsPerSecond, reports.ReviewsPerSecond
	api, err := kubernetes.NewForConfigAndClient(connection, manager.GetHTTPClient())
	if err != nil {
		return err
	}
	endpoint := &reports.Endpoint{
		Reader: manager.GetAPIReader(), Writer: manager.GetClient(), Address: rp.address, Port: rp.settings.Reports.Port,
		Service: client.ObjectKey{Namespace: rp.namespace, Name: rp.settings.Reports.ServiceName},
	}
	return manager.Add(&reports.Server{
		Port: rp.settings.Reports.Port, Handler: reports.NewHandler(store, jobs, api), Certificate: rp.certificate(), Announce: endpoint.Announce,
	})
}

func (rp *reportPort) certificate() func() (*tls.Certificate, error) {
	if rp.secrets == nil {
		return func() (*tls.Certificate, error) { return certificateIn(rp.settings.Webhook.CertificateDirectory)(nil) }
	}
	issued := &reports.Issued{CA: rp.authority, Names: rp.names, Clock: clock.RealClock{}}
	return issued.Certificate
}

// reportedJobs finds the jobs that are reported for, in the cache.
type reportedJobs map[job.Kind]*Reconciler

var _ reports.Jobs = reportedJobs(nil)

func newReportedJobs(reconcilers []*Reconciler) reportedJobs {
	jobs := reportedJobs{}
	for _, r := range reconcilers {
		jobs[r.kind.name()] = r
	}
	return jobs
}

// Find implements reports.Jobs.
func (jobs reportedJobs) Find(ctx context.Context, key reports.Key, sender enginereports.Sender) (reports.Start, enginereports.Target, error) {
	r := jobs[key.Kind]
	object := r.kind.empty()
	if err := r.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, object); err != nil {
		return reports.Start{}, enginereports.Target{}, err
	}
	previous := r.kind.previous(object)
	start := reports.Start{Key: key, UID: object.GetUID()}
	if previous.Restart != nil {
		start.Restart = previous.Restart.Count
	}
	target := enginereports.Target{
		Namespace: key.Namespace, Name: key.Name, Restart: start.Restart, Pods: int(previous.WorkerCount) + 1, Finished: previous.Finished(), RestartsAsWhole: key.Kind.Traits().RestartsAsWhole,
	}
	err := r.findSender(ctx, &job.Job{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, UID: start.UID}, sender, &target)
	return start, target, err
}

// findSender reads the pod of a sender, and whether it belongs to a job.
func (r *Reconciler) findSender(ctx context.Context, j *job.Job, sender enginereports.Sender, target *enginereports.Target) error {
	if sender.Pod == "" || sender.Namespace != j.Namespace {
		return nil
	}
	pod := &corev1.Pod{}
	err := r.Get(ctx, client.ObjectKey{Namespace: sender.Namespace, Name: sender.Pod}, pod)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read pod %s/%s: %w", sender.Namespace, sender.Pod, err)
	}
	scope := &scope{job: j}
	if err := r.findWorkload(ctx, scope); err != nil {
		return err
	}
	target.Pod, target.Owned = pod, scope.workload != nil && scope.owns(pod)
	return nil
}

// findWorkload reads the workload of a job, without its templates.
func (r *Reconciler) findWorkload(ctx context.Context, scope *scope) error {
	if !r.kind.hasWorkloads() {
		return nil
	}
	workload := r.kind.emptyWorkload()
	err := r.Get(ctx, client.ObjectKey{Namespace: scope.job.Namespace, Name: plan.NamesOf(scope.job).Workload}, workload)
	if err == nil && (workload.GetUID() == scope.job.UID || isOwned(workload, scope.job)) {
		scope.workload = workload
	}
	return client.IgnoreNotFound(err)
}

// addReports makes the reconcilers use the reports of jobs.
func addReports(store *reports.Store, reconcilers []*Reconciler) {
	jobs := newReportedJobs(reconcilers)
	for _, r := range reconcilers {
		r.reports, r.reported = store, make(chan event.GenericEvent, reportedBuffer)
	}
	store.OnChange(
		func(key reports.Key) { jobs[key.Kind].enqueueReported(key) },
		func(key reports.Key, straggler activity.Straggler) { jobs[key.Kind].warnOfStraggler(key, straggler) },
	)
}

// enqueueReported enqueues a job whose reports have changed.
func (r *Reconciler) enqueueReported(key reports.Key) {
	object := r.kind.empty()
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	r.reported <- event.GenericEvent{Object: object}
}

func (r *Reconciler) warnOfStraggler(key reports.Key, straggler activity.Straggler) {
	object := r.kind.empty()
	if err := r.Get(context.Background(), client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, object); err != nil {
		return // the job was deleted
	}
	writer := &eventWriter{object: object, recorder: r.recorder}
	writer.warning(eventStraggler, "Rank %d on %s is %.1f times slower than the median of the ranks", straggler.Rank, straggler.Host, straggler.Factor)
}

// reportedOf returns what the pods of a job have reported, as far as the status may show
// it. The status of a job that finishes shows everything.
func (r *Reconciler) reportedOf(scope *scope) *diagnosis.Reported {
	if r.reports == nil {
		return nil
	}
	j := scope.job
	r.reports.Configure(j.UID, reports.Settings{Hang: j.Hang, Total: j.WorldSize(), Stalled: scope.previous.Stalled.Yes})
	finishes := false
	for _, pod := range scope.observed.Launchers {
		finishes = finishes || hasEnded(pod)
	}
	return r.reports.Published(j.UID, finishes)
}

// SPDX-License-Identifier: Apache-2.0

// Package operator is the process that serves the job APIs: its manager, its
// webhooks and their certificate, its metrics.
package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllers "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/kube/partial"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
)

// Options are what differs from one process to the next.
type Options struct {
	Config *config.Config
	// Namespace that the operator itself runs in.
	Namespace string
	// PodIP is the address of the operator's own pod, which receives reports; empty outside
	// of a pod.
	PodIP string
	// ProbeAddress serves /healthz and /readyz; "0" serves nothing.
	ProbeAddress string
	// Audit gets one line for each change of a job.
	Audit io.Writer
}

// Scheme knows every kind that the operator reads or writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v2alpha1.AddToScheme, v2beta1.AddToScheme, jobset.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// New sets up the operator. Starting the manager starts it.
func New(connection *rest.Config, options Options) (ctrl.Manager, error) {
	settings := options.Config.Webhook
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = options.Config.Client.QPS, int(options.Config.Client.Burst)
	manager, err := ctrl.NewManager(connection, managerOptions(options))
	if err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	onOpenShift, err := hasSecurityContextConstraints(manager.GetRESTMapper())
	if err != nil {
		return nil, fmt.Errorf("check for OpenShift's security context constraints: %w", err)
	}
	if settings.ClientCAFile != "" {
		if _, err := clientAuthorities(settings.ClientCAFile); err != nil {
			return nil, err
		}
	}
	certified := make(chan struct{})
	var secrets cache.Cache
	if settings.ManageCertificates {
		if secrets, err = manageCertificate(manager, settings, options.Namespace, certified); err != nil {
			return nil, fmt.Errorf("manage the webhook's certificate: %w", err)
		}
	} else {
		close(certified)
	}
	if options.Config.IssuesServerCertificate() {
		if err := manageServerCertificate(manager, options.Config, options.Namespace); err != nil {
			return nil, fmt.Errorf("manage the server's certificate: %w", err)
		}
	}
	paths, err := writePaths(manager, settings, options.Namespace, secrets)
	if err != nil {
		return nil, fmt.Errorf("write the paths of the webhooks: %w", err)
	}
	audit := admission.NewAudit(options.Audit)
	var authorities client.Reader
	if secrets != nil {
		authorities = secrets
	}
	port, err := newReportPort(options, authorities)
	if err != nil {
		return nil, err
	}
	if err := addReconcilers(manager, options.Config, audit, metrics.Registry, port); err != nil {
		return nil, err
	}
	handlers := admission.Handlers(validation.NewRules(options.Config, onOpenShift), options.Config.MPIJobs.Manage, manager.GetCache(),
		liveAPI{manager.GetAPIReader(), manager.GetClient()}, manager.GetScheme(), audit, settings.ClientCAFile != "")
	serving := &webhooks{
		manager:   manager,
		certified: certified,
		written:   paths.written,
		handlers:  restrictCallers(settings, paths.random, handlers),
	}
	return manager, errors.Join(
		manager.Add(serving),
		manager.AddHealthzCheck("ping", healthz.Ping),
		manager.AddReadyzCheck("webhooks", serving.ready),
	)
}

// liveAPI reads from the API server, not from the cache, and writes.
type liveAPI struct {
	client.Reader
	client.Writer
}

// NewForNamespace is an operator for the jobs of one namespace. It serves nothing, and tests
// can run many of them in one process.
func NewForNamespace(connection *rest.Config, options Options, namespace string) (ctrl.Manager, error) {
	settings := managerOptions(options)
	settings.Metrics.BindAddress = config.MetricsOff
	settings.Cache.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	settings.Controller.SkipNameValidation = new(true)
	manager, err := ctrl.NewManager(connection, settings)
	if err != nil {
		return nil, fmt.Errorf("set up: %w", err)
	}
	return manager, addReconcilers(manager, options.Config, admission.NewAudit(options.Audit), prometheus.NewRegistry(), nil)
}

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=trireme-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=trireme-system,resources=leases,resourceNames=trireme-leader,verbs=get;update
// +kubebuilder:rbac:groups="",namespace=trireme-system,resources=events,verbs=create;patch

const (
	// leaseName is the Lease of the leader election.
	leaseName = "trireme-leader"
	// shutdownTimeout is how long running reconciles may take to finish. With the three
	// seconds before it, it fits into the grace period of 30 seconds.
	shutdownTimeout = 20 * time.Second
	// retryPeriod is how often a replica tries to become the leader. A leader that stops
	// releases its Lease, so this is how long there is no leader.
	retryPeriod = time.Second
)

func managerOptions(options Options) ctrl.Options {
	settings := options.Config
	return ctrl.Options{
		Scheme:                 Scheme(),
		HealthProbeBindAddress: options.ProbeAddress,
		Metrics:                metricsOptions(settings),
		WebhookServer: webhook.NewServer(webhook.Options{
			Port: int(settings.Webhook.Port), CertDir: settings.Webhook.CertificateDirectory, TLSOpts: verifyClients(settings.Webhook),
		}),
		LeaderElection:                settings.LeaderElection.Enabled,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       options.Namespace,
		LeaderElectionReleaseOnCancel: true,
		RetryPeriod:                   new(retryPeriod),
		GracefulShutdownTimeout:       new(shutdownTimeout),
		// A new leader has filled its caches already.
		Controller: controllers.Controller{EnableWarmup: new(true)},
		Cache: cache.Options{
			DefaultTransform: partial.Transform,
			ByObject:         CachedKinds(),
			NewInformer:      partial.NewInformer,
		},
	}
}

// trimNode keeps the fields of a node that are read: its images alone are kilobytes.
func trimNode(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	small := &corev1.Node{}
	small.Name, small.ResourceVersion = node.Name, node.ResourceVersion
	small.Status.Allocatable = node.Status.Allocatable
	small.Status.NodeInfo.KubeletVersion = node.Status.NodeInfo.KubeletVersion
	small.Status.NodeInfo.ContainerRuntimeVersion = node.Status.NodeInfo.ContainerRuntimeVersion
	return small, nil
}

func hasSecurityContextConstraints(mapper meta.RESTMapper) (bool, error) {
	_, err := mapper.RESTMapping(schema.GroupKind{Group: "security.openshift.io", Kind: "SecurityContextConstraints"})
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}

// webhooks serves the handlers once the certificate exists, the webhook configurations
// have the paths and the cache is filled. Until then the API server gets no response and
// rejects requests.
type webhooks struct {
	manager   ctrl.Manager
	certified <-chan struct{}
	written   <-chan struct{}
	handlers  map[string]http.Handler
	started   atomic.Bool
}

// NeedLeaderElection is false, because every replica serves webhooks.
func (w *webhooks) NeedLeaderElection() bool { return false }

func (w *webhooks) Start(ctx context.Context) error {
	for _, kind := range admission.Cached() {
		if _, err := w.manager.GetCache().GetInformer(ctx, kind); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	for _, done := range []<-chan struct{}{w.certified, w.written} {
		select {
		case <-done:
		case <-ctx.Done():
			return nil
		}
	}
	server := w.manager.GetWebhookServer()
	for path, handler := range w.handlers {
		server.Register(path, handler)
	}
	w.started.Store(true)
	<-ctx.Done()
	return nil
}

func (w *webhooks) ready(request *http.Request) error {
	if !w.started.Load() {
		return errors.New("the webhooks are not ready: waiting for their certificate, their paths or the cache")
	}
	return w.manager.GetWebhookServer().StartedChecker()(request)
}

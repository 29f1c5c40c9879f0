// Package config is the operator's configuration: a file, its defaults and its
// checks. The limits of the API are here and not in the schemas, so that a
// platform team can move them without a new version of the CRDs.
package config

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Version and kind that a configuration file starts with.
const (
	APIVersion = "trireme.kubeflow.org/v1alpha1"
	Kind       = "OperatorConfiguration"
)

// Config is the operator's configuration.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Limits    Limits    `json:"limits"`
	Defaults  Defaults  `json:"defaults"`
	Admission Admission `json:"admission"`

	Agent       Agent       `json:"agent"`
	Initializer Initializer `json:"initializer"`
	// ClusterDomain is the end of every Service's name, such as cluster.local.
	// Empty, it is discovered.
	ClusterDomain string   `json:"clusterDomain"`
	Gang          Gang     `json:"gang"`
	Network       Network  `json:"network"`
	Failures      Failures `json:"failures"`

	Reconcile      Reconcile      `json:"reconcile"`
	Client         Client         `json:"client"`
	Metrics        Metrics        `json:"metrics"`
	LeaderElection LeaderElection `json:"leaderElection"`
	Webhook        Webhook        `json:"webhook"`
	Server         Server         `json:"server"`
}

// Limits are what a job may ask for.
type Limits struct {
	// MaxNodes of a TrainJob.
	MaxNodes int32 `json:"maxNodes"`
	// MinWorkers and MaxWorkers of an MPIJob. The launcher counts as a worker
	// where it runs as one.
	MinWorkers int32 `json:"minWorkers"`
	MaxWorkers int32 `json:"maxWorkers"`
	// MaxSlots of a worker, by kind.
	MaxSlots MaxSlots `json:"maxSlotsPerWorker"`
	// MaxGPUs of a worker of an MPIJob.
	MaxGPUs int32 `json:"maxGPUsPerWorker"`
	// ManyGPUs of a worker of a TrainJob are worth a warning when exceeded.
	ManyGPUs int32 `json:"warnAboveGPUsPerNode"`
	// MinCPU and MinMemory of a worker that asks for CPU or memory.
	MinCPU    resource.Quantity `json:"minCPUPerWorker"`
	MinMemory resource.Quantity `json:"minMemoryPerWorker"`
	// ScheduleTimeoutSeconds of a runtime. An MPIJob's is raised to the least.
	MinScheduleTimeoutSeconds int32 `json:"minScheduleTimeoutSeconds"`
	MaxScheduleTimeoutSeconds int32 `json:"maxScheduleTimeoutSeconds"`
	// MaxEnv is the most environment variables of a container.
	MaxEnv int32 `json:"maxEnvPerContainer"`
	// MaxBytes of a job or runtime. etcd's own limit would answer with less help.
	MaxBytes int32 `json:"maxObjectBytes"`
}

// MaxSlots is the most slots of a worker, by kind.
type MaxSlots struct {
	TrainJob int32 `json:"trainJob"`
	MPIJob   int32 `json:"mpiJob"`
}

// Defaults are what a job gets that does not say otherwise.
type Defaults struct {
	// LauncherCPU and LauncherMemory of a TrainJob's launcher.
	LauncherCPU    resource.Quantity `json:"launcherCPU"`
	LauncherMemory resource.Quantity `json:"launcherMemory"`
	// ScheduleTimeoutSeconds of a TrainJob whose runtime does not say it.
	ScheduleTimeoutSeconds int32 `json:"scheduleTimeoutSeconds"`
	// MPIJobScheduleTimeoutSeconds of an MPIJob that does not set it. 0, the default, is
	// no limit.
	MPIJobScheduleTimeoutSeconds int32 `json:"mpiJobScheduleTimeoutSeconds"`
	// RunAsUser of pods that name no user and must not be root. OpenShift
	// chooses one by itself: leave it out there.
	RunAsUser *int64 `json:"runAsUser,omitempty"`
}

// Admission is how jobs are judged.
type Admission struct {
	// MPIJobDeprecation says what the operator tells those who create an MPIJob.
	MPIJobDeprecation Deprecation `json:"mpiJobDeprecation"`
	// PodSecurity says what a violation of the namespace's PodSecurity level is.
	PodSecurity PodSecurity `json:"podSecurity"`
}

// Deprecation is what becomes of an API that is going away.
type Deprecation string

const (
	// DeprecationOff says nothing.
	DeprecationOff Deprecation = "Off"
	// DeprecationWarn accepts jobs with a warning.
	DeprecationWarn Deprecation = "Warn"
	// DeprecationRefuse refuses new jobs.
	DeprecationRefuse Deprecation = "Refuse"
)

// PodSecurity is what a violation of the namespace's PodSecurity level is.
type PodSecurity string

const (
	// PodSecurityAuto refuses, except on OpenShift, whose security context
	// constraints fill in what a pod leaves open.
	PodSecurityAuto PodSecurity = "Auto"
	// PodSecurityRefuse refuses.
	PodSecurityRefuse PodSecurity = "Refuse"
	// PodSecurityWarn warns.
	PodSecurityWarn PodSecurity = "Warn"
)

// Images that an operator starts jobs with if it is not told of others.
const (
	DefaultAgentImage       = "trireme.local/mpi-agent:dev"
	DefaultInitializerImage = "trireme.local/initializer:dev"
)

// Agent is the program in every pod.
type Agent struct {
	Image string `json:"image"`
	// PullSecrets are image pull secrets in the namespaces of jobs, for the images of
	// agent and initializer. They are added to those of the pods.
	PullSecrets []string `json:"pullSecrets,omitempty"`
	Delivery    Delivery `json:"delivery"`
}

// Delivery is how the agent gets into pods.
type Delivery string

const (
	// DeliveryAuto takes an image volume where the cluster is known to have them.
	DeliveryAuto Delivery = "Auto"
	// DeliveryImageVolume mounts the agent's image.
	DeliveryImageVolume Delivery = "ImageVolume"
	// DeliveryInitContainer copies the agent before the pod's containers start.
	DeliveryInitContainer Delivery = "InitContainer"
)

// Initializer is the program that fetches datasets and models.
type Initializer struct {
	Image string `json:"image"`
}

// Gang is how pods get their places together.
type Gang struct {
	// CoschedulerName is the scheduler of pods in a gang of scheduler-plugins.
	CoschedulerName string `json:"coschedulerName"`
}

// Network is what the pods of a job with a network policy may reach.
type Network struct {
	// EgressPorts are open to every address: storage, registries of models.
	EgressPorts []int32 `json:"egressPorts"`
}

// Failures are how long the operator waits before it calls something a failure.
type Failures struct {
	// ImagePullSeconds is how long a pod that cannot pull its image may hold the
	// others.
	ImagePullSeconds int32 `json:"imagePullSeconds"`
	// QuotaSeconds is how long a job waits for others to free a ResourceQuota that
	// refuses a part of it.
	QuotaSeconds int32 `json:"quotaSeconds"`
	// RestartSeconds is the pause before the first restart of a job; each of the next
	// is twice as long, at most 6 minutes.
	RestartSeconds int32 `json:"restartSeconds"`
}

// Reconcile is how the operator works on jobs.
type Reconcile struct {
	// Workers are the jobs of each kind that are worked on at the same time.
	Workers int32 `json:"workers"`
}

// Client is how fast the operator may talk to the API server.
type Client struct {
	// QPS is requests a second, over time; Burst is how many at once.
	QPS   float32 `json:"qps"`
	Burst int32   `json:"burst"`
}

// MetricsOff as an address serves no metrics.
const MetricsOff = "0"

// Metrics is where the operator's metrics are read.
type Metrics struct {
	BindAddress string `json:"bindAddress"`
}

// LeaderElection is whether replicas agree on one that works on jobs.
type LeaderElection struct {
	// Enabled is off only where there is one replica, ever.
	Enabled bool `json:"enabled"`
}

// Webhook is where the API server finds the operator.
type Webhook struct {
	Port int32 `json:"port"`
	// CertificateDirectory has tls.crt and tls.key.
	CertificateDirectory string `json:"certificateDirectory"`
	// ManageCertificates makes the operator issue and renew the certificate by
	// itself. Turn it off where cert-manager or OpenShift does it.
	ManageCertificates bool `json:"manageCertificates"`
	// ClientCAFile has the authorities of the API server's client certificate. With it,
	// every other caller is refused. Without it, callers are not verified: answers have
	// no quota figures, and audit lines say so.
	ClientCAFile string `json:"clientCAFile,omitempty"`
	// ClientNames are the common names that the certificate may have; any if empty.
	ClientNames []string `json:"clientNames,omitempty"`
	// Host is the name that the API server calls, if it is not the Service's: for
	// an operator outside of the cluster.
	Host string `json:"host,omitempty"`
	// ServiceName, SecretName and ConfigurationName are the objects that belong
	// to the webhook.
	ServiceName       string `json:"serviceName"`
	SecretName        string `json:"secretName"`
	ConfigurationName string `json:"configurationName"`
}

// Server is the serving certificate of the server. The operator issues it with the CA
// of the webhook, so there is none without webhook.manageCertificates.
type Server struct {
	// ManageCertificate makes the operator issue and renew the certificate. Turn it off
	// where something else writes the Secret.
	ManageCertificate bool `json:"manageCertificate"`
	// ExtraNames are DNS names and IP addresses in the certificate besides those of the
	// Service: a Route, an Ingress or a load balancer in front of the server.
	ExtraNames []string `json:"extraNames,omitempty"`
	// ServiceName, SecretName and CAConfigMapName are the objects that belong to the
	// server: what it is called, its certificate, and the CA for its clients.
	ServiceName     string `json:"serviceName"`
	SecretName      string `json:"secretName"`
	CAConfigMapName string `json:"caConfigMapName"`
}

// IssuesServerCertificate says whether the operator issues the server's certificate.
func (config *Config) IssuesServerCertificate() bool {
	return config.Webhook.ManageCertificates && config.Server.ManageCertificate
}

// Default is the configuration without a file: the limits that the API is
// documented with.
func Default() *Config {
	return &Config{
		APIVersion: APIVersion,
		Kind:       Kind,
		Limits: Limits{
			MaxNodes:                  64,
			MinWorkers:                2,
			MaxWorkers:                100,
			MaxSlots:                  MaxSlots{TrainJob: 16, MPIJob: 8},
			MaxGPUs:                   16,
			ManyGPUs:                  8,
			MinCPU:                    resource.MustParse("1"),
			MinMemory:                 resource.MustParse("1Gi"),
			MinScheduleTimeoutSeconds: 60,
			MaxScheduleTimeoutSeconds: 3600,
			MaxEnv:                    1000,
			MaxBytes:                  1 << 20,
		},
		Defaults: Defaults{
			LauncherCPU:            resource.MustParse("2"),
			LauncherMemory:         resource.MustParse("4Gi"),
			ScheduleTimeoutSeconds: 300,
		},
		Admission:      Admission{MPIJobDeprecation: DeprecationOff, PodSecurity: PodSecurityAuto},
		Agent:          Agent{Image: DefaultAgentImage, Delivery: DeliveryAuto},
		Initializer:    Initializer{Image: DefaultInitializerImage},
		Gang:           Gang{CoschedulerName: "scheduler-plugins-scheduler"},
		Network:        Network{EgressPorts: []int32{443}},
		Failures:       Failures{ImagePullSeconds: 300, QuotaSeconds: 60, RestartSeconds: 10},
		Reconcile:      Reconcile{Workers: 16},
		Client:         Client{QPS: 500, Burst: 1000},
		Metrics:        Metrics{BindAddress: ":8443"},
		LeaderElection: LeaderElection{Enabled: true},
		Webhook: Webhook{
			Port:                 9443,
			CertificateDirectory: "/tmp/trireme-webhook",
			ManageCertificates:   true,
			ServiceName:          "trireme-webhook",
			SecretName:           "trireme-webhook",
			ConfigurationName:    "trireme",
		},
		Server: Server{ManageCertificate: true, ServiceName: "trireme-server", SecretName: "trireme-server-tls", CAConfigMapName: "trireme-ca"},
	}
}

// Parse reads a configuration file over the defaults. The path is for errors.
func Parse(path string, data []byte) (*Config, error) {
	config := Default()
	if documents := strings.Count("\n"+strings.TrimPrefix(string(data), "---\n"), "\n---\n"); documents > 0 {
		return nil, fmt.Errorf("configuration %s: has more than one document", path)
	}
	// A file says for itself what it is.
	config.APIVersion, config.Kind = "", ""
	if err := yaml.UnmarshalStrict(data, config); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

// JobDefaults are the defaults in the form that the model takes.
func (config *Config) JobDefaults() job.Defaults {
	return job.Defaults{
		LauncherResources: corev1.ResourceList{
			corev1.ResourceCPU:    config.Defaults.LauncherCPU,
			corev1.ResourceMemory: config.Defaults.LauncherMemory,
		},
		ScheduleTimeoutSeconds:       config.Defaults.ScheduleTimeoutSeconds,
		MPIJobScheduleTimeoutSeconds: config.Defaults.MPIJobScheduleTimeoutSeconds,
		MinScheduleTimeoutSeconds:    config.Limits.MinScheduleTimeoutSeconds,
		RunAsUser:                    config.Defaults.RunAsUser,
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package config reads the operator's configuration file, with defaults and validation.
// The limits of the API are here and not in the CRDs, so that a platform team can change
// them without new CRDs.
package config

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// APIVersion and Kind of a configuration file.
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
	MPIJobs   MPIJobs   `json:"mpiJobs"`

	Agent       Agent       `json:"agent"`
	Initializer Initializer `json:"initializer"`
	// ClusterDomain is the DNS domain of Services, such as cluster.local. If empty, it is
	// discovered.
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
	Hang           Hang           `json:"hang"`
	Reports        Reports        `json:"reports"`
}

// Limits of jobs.
type Limits struct {
	// MaxNodes of a TrainJob.
	MaxNodes int32 `json:"maxNodes"`
	// MinWorkers and MaxWorkers of an MPIJob. A launcher that runs ranks counts as a
	// worker.
	MinWorkers int32 `json:"minWorkers"`
	MaxWorkers int32 `json:"maxWorkers"`
	// MaxSlots of a worker, by kind.
	MaxSlots MaxSlots `json:"maxSlotsPerWorker"`
	// MaxGPUs of a worker of an MPIJob.
	MaxGPUs int32 `json:"maxGPUsPerWorker"`
	// ManyGPUs is the number of GPUs per worker of a TrainJob above which admission warns.
	ManyGPUs int32 `json:"warnAboveGPUsPerNode"`
	// MinCPU and MinMemory of a worker that requests CPU or memory.
	MinCPU    resource.Quantity `json:"minCPUPerWorker"`
	MinMemory resource.Quantity `json:"minMemoryPerWorker"`
	// Limits of a runtime's scheduleTimeoutSeconds. That of an MPIJob is raised to the
	// minimum.
	MinScheduleTimeoutSeconds int32 `json:"minScheduleTimeoutSeconds"`
	MaxScheduleTimeoutSeconds int32 `json:"maxScheduleTimeoutSeconds"`
	// MaxEnv is the maximum number of environment variables of a container.
	MaxEnv int32 `json:"maxEnvPerContainer"`
	// MaxBytes of a job or runtime. etcd has a limit too, with a less helpful message.
	MaxBytes int32 `json:"maxObjectBytes"`
}

// MaxSlots is the maximum number of slots per worker, by kind.
type MaxSlots struct {
	TrainJob int32 `json:"trainJob"`
	MPIJob   int32 `json:"mpiJob"`
}

// Defaults of jobs.
type Defaults struct {
	// LauncherCPU and LauncherMemory of a TrainJob's launcher.
	LauncherCPU    resource.Quantity `json:"launcherCPU"`
	LauncherMemory resource.Quantity `json:"launcherMemory"`
	// ScheduleTimeoutSeconds of a TrainJob whose runtime does not set it.
	ScheduleTimeoutSeconds int32 `json:"scheduleTimeoutSeconds"`
	// MPIJobScheduleTimeoutSeconds of an MPIJob that does not set it. 0, the default, is
	// no limit.
	MPIJobScheduleTimeoutSeconds int32 `json:"mpiJobScheduleTimeoutSeconds"`
	// RunAsUser of pods that set no user and must not be root. OpenShift chooses one
	// itself: do not set it there.
	RunAsUser *int64 `json:"runAsUser,omitempty"`
}

// Admission are the settings of the webhook's rules.
type Admission struct {
	// MPIJobDeprecation is how admission treats new MPIJobs.
	MPIJobDeprecation Deprecation `json:"mpiJobDeprecation"`
	// PodSecurity is how admission treats violations of the namespace's PodSecurity level.
	PodSecurity PodSecurity `json:"podSecurity"`
}

// Deprecation is how admission treats a deprecated API.
type Deprecation string

const (
	// DeprecationOff accepts jobs without a warning.
	DeprecationOff Deprecation = "Off"
	// DeprecationWarn accepts jobs with a warning.
	DeprecationWarn Deprecation = "Warn"
	// DeprecationRefuse refuses new jobs.
	DeprecationRefuse Deprecation = "Refuse"
)

// PodSecurity is how admission treats violations of the namespace's PodSecurity level.
type PodSecurity string

const (
	// PodSecurityAuto refuses, except on OpenShift, whose security context constraints set
	// fields that a pod leaves empty.
	PodSecurityAuto PodSecurity = "Auto"
	// PodSecurityRefuse refuses.
	PodSecurityRefuse PodSecurity = "Refuse"
	// PodSecurityWarn warns.
	PodSecurityWarn PodSecurity = "Warn"
)

// MPIJobs are the settings for a cluster on which mpi-operator runs, too.
type MPIJobs struct {
	// Manage is the share of the MPIJobs that Trireme runs.
	Manage job.Share `json:"manage"`
}

// Default images of agent and initializer.
const (
	DefaultAgentImage       = "trireme.local/mpi-agent:dev"
	DefaultInitializerImage = "trireme.local/initializer:dev"
)

// Agent are the settings of the agent in every pod.
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
	// DeliveryAuto uses an image volume if the cluster supports it.
	DeliveryAuto Delivery = "Auto"
	// DeliveryImageVolume mounts the agent's image.
	DeliveryImageVolume Delivery = "ImageVolume"
	// DeliveryInitContainer copies the agent before the pod's containers start.
	DeliveryInitContainer Delivery = "InitContainer"
)

// Initializer are the settings of the program that downloads datasets and models.
type Initializer struct {
	Image string `json:"image"`
}

// Gang are the settings of gang scheduling.
type Gang struct {
	// CoschedulerName is the scheduler of pods in a gang of scheduler-plugins.
	CoschedulerName string `json:"coschedulerName"`
}

// Network are the settings of network policies of jobs.
type Network struct {
	// EgressPorts are allowed to every address: storage, model registries.
	EgressPorts []int32 `json:"egressPorts"`
	// DefaultTemplate is the template of jobs that set no networkPolicy. Empty creates no
	// NetworkPolicy for them.
	DefaultTemplate training.NetworkPolicyTemplate `json:"defaultTemplate,omitempty"`
}

// Failures are the timeouts after which the operator fails a job.
type Failures struct {
	// ImagePullSeconds is how long a job waits for a pod that cannot pull its image.
	ImagePullSeconds int32 `json:"imagePullSeconds"`
	// QuotaSeconds is how long a job waits for a ResourceQuota that refuses one of its
	// objects.
	QuotaSeconds int32 `json:"quotaSeconds"`
	// RestartSeconds is the delay before the first restart of a job; it doubles with each
	// restart, up to 6 minutes.
	RestartSeconds int32 `json:"restartSeconds"`
}

// Reconcile are the settings of the controllers.
type Reconcile struct {
	// Workers is how many jobs of each kind are reconciled in parallel.
	Workers int32 `json:"workers"`
}

// Client are the rate limits of requests to the API server.
type Client struct {
	// QPS is requests per second on average; Burst is the maximum at once.
	QPS   float32 `json:"qps"`
	Burst int32   `json:"burst"`
}

// MetricsOff is the address that disables metrics.
const MetricsOff = "0"

// Metrics is the address of the operator's metrics.
type Metrics struct {
	BindAddress string `json:"bindAddress"`
}

// LeaderElection are the settings of leader election between replicas.
type LeaderElection struct {
	// Enabled can be off only if there is never more than one replica.
	Enabled bool `json:"enabled"`
}

// Webhook are the settings of the webhook server.
type Webhook struct {
	Port int32 `json:"port"`
	// CertificateDirectory contains tls.crt and tls.key.
	CertificateDirectory string `json:"certificateDirectory"`
	// ManageCertificates makes the operator issue and renew the certificate itself. Turn it
	// off if cert-manager or OpenShift does it.
	ManageCertificates bool `json:"manageCertificates"`
	// ClientCAFile contains the CAs of the API server's client certificate. If it is set,
	// every other caller is refused. Otherwise callers are not verified: messages have no
	// quota figures, and audit lines say so.
	ClientCAFile string `json:"clientCAFile,omitempty"`
	// ClientNames are the common names that the certificate may have; any if empty.
	ClientNames []string `json:"clientNames,omitempty"`
	// Host is the name that the API server connects to instead of the Service: for an
	// operator outside of the cluster.
	Host string `json:"host,omitempty"`
	// ServiceName, SecretName and ConfigurationName are the objects of the webhook.
	ServiceName       string `json:"serviceName"`
	SecretName        string `json:"secretName"`
	ConfigurationName string `json:"configurationName"`
}

// Server are the settings of the server's certificate. The operator issues it with the
// CA of the webhook, so it requires webhook.manageCertificates.
type Server struct {
	// ManageCertificate makes the operator issue and renew the certificate. Turn it off if
	// something else writes the Secret.
	ManageCertificate bool `json:"manageCertificate"`
	// ExtraNames are DNS names and IP addresses in the certificate besides those of the
	// Service: a Route, an Ingress or a load balancer in front of the server.
	ExtraNames []string `json:"extraNames,omitempty"`
	// ServiceName, SecretName and CAConfigMapName are the objects of the server: its
	// Service, its certificate, and the CA for its clients.
	ServiceName     string `json:"serviceName"`
	SecretName      string `json:"secretName"`
	CAConfigMapName string `json:"caConfigMapName"`
}

// Hang is what happens to jobs whose ranks make no progress, if neither the job nor its
// runtime sets it.
type Hang struct {
	// After is how long the ranks may make no progress; 0s disables the detection.
	After  metav1.Duration     `json:"after"`
	Action training.HangAction `json:"action"`
}

// Reports are the settings of the port on which the leader receives the reports of jobs. It
// needs webhook.manageCertificates, whose CA signs its certificate.
type Reports struct {
	// Port of the operator's pods; 0 receives no reports.
	Port int32 `json:"port"`
	// ServiceName is the Service that pods of jobs connect to, on the same port. It has no
	// selector: the leader writes its own address into its EndpointSlice.
	ServiceName string `json:"serviceName"`
}

// ReceivesReports reports whether jobs can report to the operator.
func (c *Config) ReceivesReports() bool {
	return c.Reports.Port != 0 && c.Webhook.ManageCertificates
}

// IssuesServerCertificate reports whether the operator issues the server's certificate.
func (c *Config) IssuesServerCertificate() bool {
	return c.Webhook.ManageCertificates && c.Server.ManageCertificate
}

// Default returns the configuration without a file, with the documented limits.
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
		MPIJobs:        MPIJobs{Manage: job.ShareAll},
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
		Hang:    Hang{After: metav1.Duration{Duration: 15 * time.Minute}, Action: training.HangWarn},
		Reports: Reports{Port: job.ReportsPort, ServiceName: job.ReportsService},
		Server:  Server{ManageCertificate: true, ServiceName: "trireme-server", SecretName: "trireme-server-tls", CAConfigMapName: "trireme-ca"},
	}
}

// Parse reads a configuration file over the defaults. The path is for errors.
func Parse(path string, data []byte) (*Config, error) {
	config := Default()
	if documents := strings.Count("\n"+strings.TrimPrefix(string(data), "---\n"), "\n---\n"); documents > 0 {
		return nil, fmt.Errorf("configuration %s: has more than one document", path)
	}
	// A file must set these itself.
	config.APIVersion, config.Kind = "", ""
	if err := yaml.UnmarshalStrict(data, config); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

// JobDefaults returns the defaults for the job model.
func (c *Config) JobDefaults() job.Defaults {
	return job.Defaults{
		LauncherResources: corev1.ResourceList{
			corev1.ResourceCPU:    c.Defaults.LauncherCPU,
			corev1.ResourceMemory: c.Defaults.LauncherMemory,
		},
		ScheduleTimeoutSeconds:       c.Defaults.ScheduleTimeoutSeconds,
		MPIJobScheduleTimeoutSeconds: c.Defaults.MPIJobScheduleTimeoutSeconds,
		MinScheduleTimeoutSeconds:    c.Limits.MinScheduleTimeoutSeconds,
		MaxNodes:                     c.Limits.MaxNodes,
		RunAsUser:                    c.Defaults.RunAsUser,
		NetworkPolicy:                c.Network.DefaultTemplate,
		Hang:                         job.Hang{After: c.Hang.After.Duration, Action: c.Hang.Action},
	}
}

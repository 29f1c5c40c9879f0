// Package config is the operator's configuration: a file, its defaults and its
// checks. The limits of the API are here and not in the schemas, so that a
// platform team can move them without a new version of the CRDs.
package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/job"
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
	Webhook   Webhook   `json:"webhook"`
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
	// ScheduleTimeoutSeconds of a runtime.
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

// Webhook is where the API server finds the operator.
type Webhook struct {
	Port int32 `json:"port"`
	// CertificateDirectory has tls.crt and tls.key.
	CertificateDirectory string `json:"certificateDirectory"`
	// ManageCertificates makes the operator issue and renew the certificate by
	// itself. Turn it off where cert-manager or OpenShift does it.
	ManageCertificates bool `json:"manageCertificates"`
	// Host is the name that the API server calls, if it is not the Service's: for
	// an operator outside of the cluster.
	Host string `json:"host,omitempty"`
	// ServiceName, SecretName and ConfigurationName are the objects that belong
	// to the webhook.
	ServiceName       string `json:"serviceName"`
	SecretName        string `json:"secretName"`
	ConfigurationName string `json:"configurationName"`
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
		Admission: Admission{MPIJobDeprecation: DeprecationOff, PodSecurity: PodSecurityAuto},
		Webhook: Webhook{
			Port:                 9443,
			CertificateDirectory: "/tmp/trireme-webhook",
			ManageCertificates:   true,
			ServiceName:          "trireme-webhook",
			SecretName:           "trireme-webhook",
			ConfigurationName:    "trireme",
		},
	}
}

// Load reads a configuration file over the defaults. Without a path it is the
// defaults.
func Load(path string) (*Config, error) {
	config := Default()
	if path == "" {
		return config, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
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

// Validate finds every fault of a configuration.
func (config *Config) Validate() error {
	var faults []error
	complain := func(format string, arguments ...any) { faults = append(faults, fmt.Errorf(format, arguments...)) }
	if config.APIVersion != APIVersion || config.Kind != Kind {
		complain("apiVersion and kind are %q and %q; this operator reads %q and %q", config.APIVersion, config.Kind, APIVersion, Kind)
	}
	limits := &config.Limits
	for _, limit := range []struct {
		name         string
		value, least int32
	}{
		{"limits.maxNodes", limits.MaxNodes, 1},
		{"limits.minWorkers", limits.MinWorkers, 0},
		{"limits.maxWorkers", limits.MaxWorkers, max(limits.MinWorkers, 1)},
		{"limits.maxSlotsPerWorker.trainJob", limits.MaxSlots.TrainJob, 1},
		{"limits.maxSlotsPerWorker.mpiJob", limits.MaxSlots.MPIJob, 1},
		{"limits.maxGPUsPerWorker", limits.MaxGPUs, 0},
		{"limits.warnAboveGPUsPerNode", limits.ManyGPUs, 0},
		{"limits.minScheduleTimeoutSeconds", limits.MinScheduleTimeoutSeconds, 1},
		{"limits.maxScheduleTimeoutSeconds", limits.MaxScheduleTimeoutSeconds, limits.MinScheduleTimeoutSeconds},
		{"limits.maxEnvPerContainer", limits.MaxEnv, 1},
		{"limits.maxObjectBytes", limits.MaxBytes, 1},
		{"defaults.scheduleTimeoutSeconds", config.Defaults.ScheduleTimeoutSeconds, 1},
		{"webhook.port", config.Webhook.Port, 1},
	} {
		if limit.value < limit.least {
			complain("%s is %d; it must be at least %d", limit.name, limit.value, limit.least)
		}
	}
	if config.Webhook.Port > 65535 {
		complain("webhook.port is %d; it must be at most 65535", config.Webhook.Port)
	}
	if user := config.Defaults.RunAsUser; user != nil && *user < 1 {
		complain("defaults.runAsUser is %d; it must be at least 1, because pods without a user must not be root", *user)
	}
	for _, setting := range []struct{ name, value string }{
		{"webhook.certificateDirectory", config.Webhook.CertificateDirectory},
		{"webhook.serviceName", config.Webhook.ServiceName},
		{"webhook.secretName", config.Webhook.SecretName},
		{"webhook.configurationName", config.Webhook.ConfigurationName},
	} {
		if setting.value == "" {
			complain("%s is empty", setting.name)
		}
	}
	for _, amount := range []struct {
		name     string
		quantity *resource.Quantity
	}{
		{"limits.minCPUPerWorker", &limits.MinCPU},
		{"limits.minMemoryPerWorker", &limits.MinMemory},
		{"defaults.launcherCPU", &config.Defaults.LauncherCPU},
		{"defaults.launcherMemory", &config.Defaults.LauncherMemory},
	} {
		if amount.quantity.Sign() < 0 {
			complain("%s is %s; it must not be negative", amount.name, amount.quantity)
		}
	}
	oneOf(complain, "admission.mpiJobDeprecation", config.Admission.MPIJobDeprecation, DeprecationOff, DeprecationWarn, DeprecationRefuse)
	oneOf(complain, "admission.podSecurity", config.Admission.PodSecurity, PodSecurityAuto, PodSecurityRefuse, PodSecurityWarn)
	return errors.Join(faults...)
}

func oneOf[T ~string](complain func(string, ...any), name string, value T, allowed ...T) {
	for _, word := range allowed {
		if value == word {
			return
		}
	}
	complain("%s is %q; it must be one of %v", name, value, allowed)
}

// JobDefaults are the defaults in the form that the model takes.
func (config *Config) JobDefaults() job.Defaults {
	return job.Defaults{
		LauncherResources: corev1.ResourceList{
			corev1.ResourceCPU:    config.Defaults.LauncherCPU,
			corev1.ResourceMemory: config.Defaults.LauncherMemory,
		},
		ScheduleTimeoutSeconds: config.Defaults.ScheduleTimeoutSeconds,
		RunAsUser:              config.Defaults.RunAsUser,
	}
}

package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

const maxPort = 65535

// faults are the errors of a configuration, in the order of the checks.
type faults []error

func (faults *faults) add(format string, arguments ...any) {
	*faults = append(*faults, fmt.Errorf(format, arguments...))
}

// Validate returns all errors of a configuration.
func (config *Config) Validate() error {
	var found faults
	if config.APIVersion != APIVersion || config.Kind != Kind {
		found.add("apiVersion and kind are %q and %q; they must be %q and %q", config.APIVersion, config.Kind, APIVersion, Kind)
	}
	config.validateNumbers(&found)
	config.validateNames(&found)
	config.validateQuantities(&found)
	config.validateAddresses(&found)
	oneOf(&found, "admission.mpiJobDeprecation", config.Admission.MPIJobDeprecation, DeprecationOff, DeprecationWarn, DeprecationRefuse)
	oneOf(&found, "admission.podSecurity", config.Admission.PodSecurity, PodSecurityAuto, PodSecurityRefuse, PodSecurityWarn)
	oneOf(&found, "agent.delivery", config.Agent.Delivery, DeliveryAuto, DeliveryImageVolume, DeliveryInitContainer)
	return errors.Join(found...)
}

func (config *Config) validateNumbers(found *faults) {
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
		{"defaults.mpiJobScheduleTimeoutSeconds", config.Defaults.MPIJobScheduleTimeoutSeconds, 0},
		{"failures.imagePullSeconds", config.Failures.ImagePullSeconds, 1},
		{"failures.quotaSeconds", config.Failures.QuotaSeconds, 1},
		{"failures.restartSeconds", config.Failures.RestartSeconds, 1},
		{"reconcile.workers", config.Reconcile.Workers, 1},
		{"client.burst", config.Client.Burst, 1},
	} {
		if limit.value < limit.least {
			found.add("%s is %d; it must be at least %d", limit.name, limit.value, limit.least)
		}
	}
	// With less than one, an operator with a full queue would hardly make progress.
	if config.Client.QPS < 1 {
		found.add("client.qps is %v; it must be at least 1", config.Client.QPS)
	}
	if user := config.Defaults.RunAsUser; user != nil && *user < 1 {
		found.add("defaults.runAsUser is %d; it must be at least 1, because pods without a user must not be root", *user)
	}
}

func (config *Config) validateNames(found *faults) {
	for _, setting := range []struct{ name, value string }{
		{"webhook.certificateDirectory", config.Webhook.CertificateDirectory},
		{"webhook.serviceName", config.Webhook.ServiceName},
		{"webhook.secretName", config.Webhook.SecretName},
		{"webhook.configurationName", config.Webhook.ConfigurationName},
		{"server.serviceName", config.Server.ServiceName},
		{"server.secretName", config.Server.SecretName},
		{"server.caConfigMapName", config.Server.CAConfigMapName},
		{"gang.coschedulerName", config.Gang.CoschedulerName},
	} {
		if setting.value == "" {
			found.add("%s is empty", setting.name)
		}
	}
	if len(config.Webhook.ClientNames) > 0 && config.Webhook.ClientCAFile == "" {
		found.add("webhook.clientNames requires webhook.clientCAFile: without a CA no name is verified")
	}
	config.validateServerNames(found)
	for _, image := range []struct{ name, value string }{
		{"agent.image", config.Agent.Image},
		{"initializer.image", config.Initializer.Image},
	} {
		if _, err := reference.ParseNormalizedNamed(image.value); err != nil {
			found.add("%s is %q; it must be an image name: %w", image.name, image.value, err)
		}
	}
	for i, secret := range config.Agent.PullSecrets {
		for _, fault := range utilvalidation.IsDNS1123Subdomain(secret) {
			found.add("agent.pullSecrets[%d] is %q; %s", i, secret, fault)
		}
	}
	if config.ClusterDomain != "" {
		for _, fault := range utilvalidation.IsDNS1123Subdomain(config.ClusterDomain) {
			found.add("clusterDomain is %q; %s", config.ClusterDomain, fault)
		}
	}
}

func (config *Config) validateServerNames(found *faults) {
	if config.Server.SecretName == config.Webhook.SecretName {
		found.add("server.secretName and webhook.secretName are both %q; the server must not be able to read the CA's key", config.Server.SecretName)
	}
	for i, name := range config.Server.ExtraNames {
		if net.ParseIP(name) != nil || len(utilvalidation.IsDNS1123Subdomain(strings.TrimPrefix(name, "*."))) == 0 {
			continue
		}
		found.add("server.extraNames[%d] is %q; it must be a DNS name in lower case, or an IP address", i, name)
	}
}

func (config *Config) validateQuantities(found *faults) {
	for _, amount := range []struct {
		name     string
		quantity *resource.Quantity
	}{
		{"limits.minCPUPerWorker", &config.Limits.MinCPU},
		{"limits.minMemoryPerWorker", &config.Limits.MinMemory},
		{"defaults.launcherCPU", &config.Defaults.LauncherCPU},
		{"defaults.launcherMemory", &config.Defaults.LauncherMemory},
	} {
		if amount.quantity.Sign() < 0 {
			found.add("%s is %s; it must not be negative", amount.name, amount.quantity)
		}
	}
}

func (config *Config) validateAddresses(found *faults) {
	port(found, "webhook.port", config.Webhook.Port)
	for i, open := range config.Network.EgressPorts {
		port(found, fmt.Sprintf("network.egressPorts[%d]", i), open)
	}
	address := config.Metrics.BindAddress
	if address == MetricsOff {
		return
	}
	_, number, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(number, 10, 16)
	}
	if err != nil {
		found.add("metrics.bindAddress is %q; it must be an address with a port, such as :8443, or %q for none", address, MetricsOff)
	}
}

func port(found *faults, name string, value int32) {
	if value < 1 || value > maxPort {
		found.add("%s is %d; it must be between 1 and %d", name, value, maxPort)
	}
}

func oneOf[T ~string](found *faults, name string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		found.add("%s is %q; it must be one of %v", name, value, allowed)
	}
}

// SPDX-License-Identifier: Apache-2.0

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

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const maxPort = 65535

// faults are the errors of a configuration, in the order of the checks.
type faults []error

func (f *faults) add(format string, arguments ...any) {
	*f = append(*f, fmt.Errorf(format, arguments...))
}

// Validate returns all errors of a configuration.
func (c *Config) Validate() error {
	var errs faults
	if c.APIVersion != APIVersion || c.Kind != Kind {
		errs.add("apiVersion and kind are %q and %q; they must be %q and %q", c.APIVersion, c.Kind, APIVersion, Kind)
	}
	c.validateNumbers(&errs)
	c.validateNames(&errs)
	c.validateQuantities(&errs)
	c.validateAddresses(&errs)
	oneOf(&errs, "admission.mpiJobDeprecation", c.Admission.MPIJobDeprecation, DeprecationOff, DeprecationWarn, DeprecationRefuse)
	oneOf(&errs, "admission.podSecurity", c.Admission.PodSecurity, PodSecurityAuto, PodSecurityRefuse, PodSecurityWarn)
	oneOf(&errs, "mpiJobs.manage", c.MPIJobs.Manage, job.Shares...)
	oneOf(&errs, "agent.delivery", c.Agent.Delivery, DeliveryAuto, DeliveryImageVolume, DeliveryInitContainer)
	oneOf(&errs, "hang.action", c.Hang.Action, training.HangWarn, training.HangRestart, training.HangFail)
	if c.Hang.After.Duration < 0 {
		errs.add("hang.after is %s; it must be 0s, which disables the detection, or longer", c.Hang.After.Duration)
	}
	if c.Network.DefaultTemplate != "" {
		oneOf(&errs, "network.defaultTemplate", c.Network.DefaultTemplate, training.NetworkPolicyDefault, training.NetworkPolicyRestricted)
	}
	return errors.Join(errs...)
}

func (c *Config) validateNumbers(errs *faults) {
	limits := &c.Limits
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
		{"defaults.scheduleTimeoutSeconds", c.Defaults.ScheduleTimeoutSeconds, 1},
		{"defaults.mpiJobScheduleTimeoutSeconds", c.Defaults.MPIJobScheduleTimeoutSeconds, 0},
		{"failures.imagePullSeconds", c.Failures.ImagePullSeconds, 1},
		{"failures.quotaSeconds", c.Failures.QuotaSeconds, 1},
		{"failures.restartSeconds", c.Failures.RestartSeconds, 1},
		{"reconcile.workers", c.Reconcile.Workers, 1},
		{"client.burst", c.Client.Burst, 1},
	} {
		if limit.value < limit.least {
			errs.add("%s is %d; it must be at least %d", limit.name, limit.value, limit.least)
		}
	}
	// With less than one, an operator with a full queue would hardly make progress.
	if c.Client.QPS < 1 {
		errs.add("client.qps is %v; it must be at least 1", c.Client.QPS)
	}
	if user := c.Defaults.RunAsUser; user != nil && *user < 1 {
		errs.add("defaults.runAsUser is %d; it must be at least 1, because pods without a user must not be root", *user)
	}
}

func (c *Config) validateNames(errs *faults) {
	for _, setting := range []struct{ name, value string }{
		{"webhook.certificateDirectory", c.Webhook.CertificateDirectory},
		{"webhook.serviceName", c.Webhook.ServiceName},
		{"webhook.secretName", c.Webhook.SecretName},
		{"webhook.configurationName", c.Webhook.ConfigurationName},
		{"reports.serviceName", c.Reports.ServiceName},
		{"server.serviceName", c.Server.ServiceName},
		{"server.secretName", c.Server.SecretName},
		{"server.caConfigMapName", c.Server.CAConfigMapName},
		{"gang.coschedulerName", c.Gang.CoschedulerName},
	} {
		if setting.value == "" {
			errs.add("%s is empty", setting.name)
		}
	}
	if len(c.Webhook.ClientNames) > 0 && c.Webhook.ClientCAFile == "" {
		errs.add("webhook.clientNames requires webhook.clientCAFile: without a CA no name is verified")
	}
	c.validateServerNames(errs)
	for _, image := range []struct{ name, value string }{
		{"agent.image", c.Agent.Image},
		{"initializer.image", c.Initializer.Image},
	} {
		if _, err := reference.ParseNormalizedNamed(image.value); err != nil {
			errs.add("%s is %q; it must be an image name: %w", image.name, image.value, err)
		}
	}
	for i, secret := range c.Agent.PullSecrets {
		for _, fault := range utilvalidation.IsDNS1123Subdomain(secret) {
			errs.add("agent.pullSecrets[%d] is %q; %s", i, secret, fault)
		}
	}
	if c.ClusterDomain != "" {
		for _, fault := range utilvalidation.IsDNS1123Subdomain(c.ClusterDomain) {
			errs.add("clusterDomain is %q; %s", c.ClusterDomain, fault)
		}
	}
}

func (c *Config) validateServerNames(errs *faults) {
	if c.Server.SecretName == c.Webhook.SecretName {
		errs.add("server.secretName and webhook.secretName are both %q; the server must not be able to read the CA's key", c.Server.SecretName)
	}
	for i, name := range c.Server.ExtraNames {
		if net.ParseIP(name) != nil || len(utilvalidation.IsDNS1123Subdomain(strings.TrimPrefix(name, "*."))) == 0 {
			continue
		}
		errs.add("server.extraNames[%d] is %q; it must be a DNS name in lower case, or an IP address", i, name)
	}
}

func (c *Config) validateQuantities(errs *faults) {
	for _, amount := range []struct {
		name     string
		quantity *resource.Quantity
	}{
		{"limits.minCPUPerWorker", &c.Limits.MinCPU},
		{"limits.minMemoryPerWorker", &c.Limits.MinMemory},
		{"defaults.launcherCPU", &c.Defaults.LauncherCPU},
		{"defaults.launcherMemory", &c.Defaults.LauncherMemory},
	} {
		if amount.quantity.Sign() < 0 {
			errs.add("%s is %s; it must not be negative", amount.name, amount.quantity)
		}
	}
}

func (c *Config) validateAddresses(errs *faults) {
	port(errs, "webhook.port", c.Webhook.Port)
	if c.Reports.Port != 0 {
		port(errs, "reports.port", c.Reports.Port)
	}
	for i, open := range c.Network.EgressPorts {
		port(errs, fmt.Sprintf("network.egressPorts[%d]", i), open)
	}
	address := c.Metrics.BindAddress
	if address == MetricsOff {
		return
	}
	_, number, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(number, 10, 16)
	}
	if err != nil {
		errs.add("metrics.bindAddress is %q; it must be an address with a port, such as :8443, or %q for none", address, MetricsOff)
	}
}

func port(errs *faults, name string, value int32) {
	if value < 1 || value > maxPort {
		errs.add("%s is %d; it must be between 1 and %d", name, value, maxPort)
	}
}

func oneOf[T ~string](errs *faults, name string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		errs.add("%s is %q; it must be one of %v", name, value, allowed)
	}
}

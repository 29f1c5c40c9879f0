// SPDX-License-Identifier: Apache-2.0

// Package teamspace returns the objects that a namespace of a team needs before it runs
// jobs: quota, default requests, network policies, role bindings and an image pull
// secret. `odh namespace prepare` and the chart use the same functions.
package teamspace

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Settings describe a namespace. They are also an entry of the chart's value namespaces.
type Settings struct {
	// Name of the namespace.
	Name string `json:"name"`
	// Quota is spec.hard of a ResourceQuota. Empty: no ResourceQuota.
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// DefaultRequests are the requests of containers that set none. Empty: no LimitRange.
	// There are no default limits: one that is lower than a container's request would make
	// its pod invalid.
	DefaultRequests corev1.ResourceList `json:"defaultRequests,omitempty"`
	// Isolation is the boundary of the network.
	Isolation Isolation `json:"isolation,omitempty"`
	// EgressPorts are the TCP ports that jobs can reach on any address.
	EgressPorts []int32 `json:"egressPorts,omitempty"`
	// OperatorNamespace is the namespace of Trireme's operator, to which jobs report their
	// progress.
	OperatorNamespace string `json:"operatorNamespace,omitempty"`
	// ReportsPort is the operator's port for these reports.
	ReportsPort int32 `json:"reportsPort,omitempty"`
	// Admins, Editors and Viewers are users and groups, such as user:alice or group:vision.
	Admins  []string `json:"admins,omitempty"`
	Editors []string `json:"editors,omitempty"`
	Viewers []string `json:"viewers,omitempty"`
	// PullSecret is an image pull secret of another namespace, as NAMESPACE/NAME, that is
	// copied.
	PullSecret string `json:"pullSecret,omitempty"`
	// PodSecurity is the level of the namespace.
	PodSecurity string `json:"podSecurity,omitempty"`
}

// Isolation is the boundary of the network of jobs.
type Isolation string

const (
	// IsolationNamespace lets the jobs of the namespace reach each other.
	IsolationNamespace Isolation = "Namespace"
	// IsolationJob lets the pods of a job reach only each other. Every job needs a network
	// policy: its own, or that of the operator's network.defaultTemplate.
	IsolationJob Isolation = "Job"
	// IsolationNone creates no network policies.
	IsolationNone Isolation = "None"
)

// Default returns the settings of a namespace for which only the name is known.
func Default(name string) Settings {
	return Settings{
		Name: name,
		DefaultRequests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
		},
		Isolation:   IsolationNamespace,
		EgressPorts: []int32{443},
		PodSecurity: "restricted",

		OperatorNamespace: "trireme-system",
		ReportsPort:       job.ReportsPort,
	}
}

// WithDefaults fills in the settings that are not set.
func (s Settings) WithDefaults() Settings {
	defaults := Default(s.Name)
	if s.DefaultRequests == nil {
		s.DefaultRequests = defaults.DefaultRequests
	}
	if s.EgressPorts == nil {
		s.EgressPorts = defaults.EgressPorts
	}
	if s.Isolation == "" {
		s.Isolation = defaults.Isolation
	}
	if s.OperatorNamespace == "" {
		s.OperatorNamespace = defaults.OperatorNamespace
	}
	if s.ReportsPort == 0 {
		s.ReportsPort = defaults.ReportsPort
	}
	if s.PodSecurity == "" {
		s.PodSecurity = defaults.PodSecurity
	}
	return s
}

// Validate returns all errors of the settings.
func (s Settings) Validate() error {
	var faults []error
	add := func(format string, arguments ...any) { faults = append(faults, fmt.Errorf(format, arguments...)) }
	for _, fault := range validation.IsDNS1123Label(s.Name) {
		add("name %q: %s", s.Name, fault)
	}
	for _, fault := range validation.IsDNS1123Label(s.OperatorNamespace) {
		add("operatorNamespace %q: %s", s.OperatorNamespace, fault)
	}
	if isSystem(s.Name) {
		add("namespace %s belongs to the system; choose a namespace for a team", s.Name)
	}
	if !slices.Contains([]Isolation{IsolationNamespace, IsolationJob, IsolationNone}, s.Isolation) {
		add("isolation must be Namespace, Job or None, not %q", s.Isolation)
	}
	if !slices.Contains([]string{"restricted", "baseline", "privileged"}, s.PodSecurity) {
		add("podSecurity must be restricted, baseline or privileged, not %q", s.PodSecurity)
	}
	for _, port := range s.EgressPorts {
		if port < 1 || port > 65535 {
			add("egressPorts must be between 1 and 65535, not %d", port)
		}
	}
	if s.ReportsPort < 1 || s.ReportsPort > 65535 {
		add("reportsPort must be between 1 and 65535, not %d", s.ReportsPort)
	}
	for _, list := range []struct {
		name   string
		values corev1.ResourceList
	}{{"quota", s.Quota}, {"defaultRequests", s.DefaultRequests}} {
		for name, quantity := range list.values {
			if quantity.Sign() < 0 {
				add("%s: %s must be 0 or greater, not %s", list.name, name, quantity.String())
			}
		}
	}
	for _, member := range slices.Concat(s.Admins, s.Editors, s.Viewers) {
		if _, err := subject(member); err != nil {
			faults = append(faults, err)
		}
	}
	if s.PullSecret != "" {
		if _, _, err := s.PullSecretName(); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// PullSecretName splits PullSecret.
func (s Settings) PullSecretName() (namespace, name string, err error) {
	namespace, name, found := strings.Cut(s.PullSecret, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", fmt.Errorf("pullSecret must be NAMESPACE/NAME, not %q", s.PullSecret)
	}
	return namespace, name, nil
}

// isSystem reports whether a namespace belongs to Kubernetes, OpenShift or Trireme.
func isSystem(name string) bool {
	return name == "default" || name == "openshift" || name == "trireme-system" ||
		strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "openshift-")
}

// SPDX-License-Identifier: Apache-2.0

// Package validation validates jobs and runtimes before they are stored. It is pure:
// the caller passes what it has read from the cluster. The webhook, the server's dry
// run and the command line all use the same rules.
package validation

import (
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
)

// Rules validate objects with the limits and defaults of a configuration.
type Rules struct {
	Limits            config.Limits
	Defaults          job.Defaults
	MPIJobDeprecation config.Deprecation
	// PodSecurityWarns: a violation of the namespace's PodSecurity level is a warning,
	// not an error.
	PodSecurityWarns bool
}

// NewRules returns the rules of a configuration.
func NewRules(configuration *config.Config, onOpenShift bool) *Rules {
	podSecurity := configuration.Admission.PodSecurity
	return &Rules{
		Limits:            configuration.Limits,
		Defaults:          configuration.JobDefaults(),
		MPIJobDeprecation: configuration.Admission.MPIJobDeprecation,
		PodSecurityWarns:  podSecurity == config.PodSecurityWarn || podSecurity == config.PodSecurityAuto && onOpenShift,
	}
}

// ClusterFacts are the facts about the cluster and the namespace of a job.
type ClusterFacts struct {
	// NamespaceLabels contain the PodSecurity level.
	NamespaceLabels map[string]string
	Quotas          []corev1.ResourceQuota
	LimitRanges     []corev1.LimitRange
	// HasPriorityClass reports whether a PriorityClass exists.
	HasPriorityClass func(name string) bool
	// DefaultPriorityClass is the class of pods that set none.
	DefaultPriorityClass string
	// AnyNodeHas reports whether any node has a resource; nil if unknown.
	AnyNodeHas func(corev1.ResourceName) bool
	// OtherKind is the kind of another job with the same name, or empty.
	OtherKind job.Kind
	// HasJob reports whether the namespace has a job of a kind and name; nil if unknown.
	HasJob func(kind job.Kind, name string) bool
	// Runtime is that of a TrainJob; nil if it does not exist.
	Runtime *v2alpha1.TrainingRuntimeSpec
	// RunningJobs counts the running jobs of the namespace. It is only called if the
	// number is shown.
	RunningJobs func() int
	// HidesQuota omits quota figures from messages: the caller is not verified, and may
	// not be allowed to see them.
	HidesQuota bool
	// Bytes is the size of the object without managedFields; 0 if unknown.
	Bytes int
}

// Findings are the errors and warnings about an object.
type Findings struct {
	Errors   field.ErrorList
	Warnings []Warning
}

// Warning is about one field of an object that is accepted.
type Warning struct {
	// Field is a path, as in field.Error.
	Field, Message string
}

// maxWarning is how many characters of a warning an API server passes on.
const maxWarning = 256

// String is the warning as the webhook sends it.
func (w Warning) String() string {
	text := w.Field + ": " + w.Message
	if runes := []rune(text); len(runes) > maxWarning {
		text = string(runes[:maxWarning-1]) + "…"
	}
	return text
}

// WarningTexts are the warnings as the webhook sends them.
func (f *Findings) WarningTexts() (texts []string) {
	for _, warning := range f.Warnings {
		texts = append(texts, warning.String())
	}
	return texts
}

// Invalid returns the findings as an API error. A quota fault has its own type of
// cause, so that clients need not read its message.
func (f *Findings) Invalid(kind schema.GroupKind, name string) *apierrors.StatusError {
	invalid := apierrors.NewInvalid(kind, name, f.Errors)
	for i, fault := range f.Errors {
		if fault.Origin == string(quota.CauseExceeded) {
			invalid.ErrStatus.Details.Causes[i].Type = quota.CauseExceeded
		}
	}
	return invalid
}

func (f *Findings) refuse(faults ...*field.Error) {
	f.Errors = append(f.Errors, faults...)
}

func (f *Findings) warn(path *field.Path, format string, arguments ...any) {
	f.Warnings = append(f.Warnings, Warning{Field: path.String(), Message: fmt.Sprintf(format, arguments...)})
}

// atLeast refuses a number below its minimum; unset is fine.
func atLeast[T int32 | int64](findings *Findings, path *field.Path, value *T, least T) {
	if value != nil && *value < least {
		findings.refuse(field.Invalid(path, *value, fmt.Sprintf("must be at least %d", least)))
	}
}

// maxDeadline is how many seconds fit into a time.Duration: 292 years. A larger value
// overflows into a time in the past.
const maxDeadline = int64(math.MaxInt64 / time.Second)

// deadline refuses seconds below the minimum or above maxDeadline; unset is fine.
func deadline(findings *Findings, path *field.Path, seconds *int64, least int64) {
	atLeast(findings, path, seconds, least)
	if seconds != nil && *seconds > maxDeadline {
		findings.refuse(field.Invalid(path, *seconds, fmt.Sprintf("must be at most %d", maxDeadline)))
	}
}

// between refuses a number outside of its range; unset is fine.
func between(findings *Findings, path *field.Path, name string, value *int32, least, most int32) {
	if value != nil && (*value < least || *value > most) {
		findings.refuse(field.Invalid(path, *value, fmt.Sprintf("%s must be between %d and %d", name, least, most)))
	}
}

// size refuses objects that etcd would refuse with a less helpful message.
func (r *Rules) size(findings *Findings, bytes int) {
	if bytes > int(r.Limits.MaxBytes) {
		findings.refuse(field.Invalid(field.NewPath("spec"), fmt.Sprintf("%d bytes", bytes),
			fmt.Sprintf("the object must have at most %d bytes; put large data into a ConfigMap or a volume", r.Limits.MaxBytes)))
	}
}

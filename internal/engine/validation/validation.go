// Package validation judges what users write, before anything is made of it. It
// is pure: what the cluster says about the namespace is handed in. The webhook,
// the server's dry run and the command line all ask the same rules.
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

// Rules are what objects are judged by.
type Rules struct {
	Limits            config.Limits
	Defaults          job.Defaults
	MPIJobDeprecation config.Deprecation
	// PodSecurityWarns: a violation of the namespace's PodSecurity level is a
	// warning, and no fault.
	PodSecurityWarns bool
}

// NewRules are the rules of a configuration.
func NewRules(configuration *config.Config, onOpenShift bool) *Rules {
	podSecurity := configuration.Admission.PodSecurity
	return &Rules{
		Limits:            configuration.Limits,
		Defaults:          configuration.JobDefaults(),
		MPIJobDeprecation: configuration.Admission.MPIJobDeprecation,
		PodSecurityWarns:  podSecurity == config.PodSecurityWarn || podSecurity == config.PodSecurityAuto && onOpenShift,
	}
}

// Surroundings are what the cluster says about the place that a job will run in.
type Surroundings struct {
	// NamespaceLabels have its PodSecurity level.
	NamespaceLabels map[string]string
	Quotas          []corev1.ResourceQuota
	LimitRanges     []corev1.LimitRange
	// HasPriorityClass tells whether there is a PriorityClass of that name.
	HasPriorityClass func(name string) bool
	// DefaultPriorityClass is what pods get that name none.
	DefaultPriorityClass string
	// AnyNodeHas tells whether there is a node with such a resource; nil if it is
	// not known.
	AnyNodeHas func(corev1.ResourceName) bool
	// OtherKind is the kind of another job that has the same name, or empty.
	OtherKind job.Kind
	// HasJob tells whether the namespace has a job of that kind and name; nil if it is
	// not known.
	HasJob func(kind job.Kind, name string) bool
	// Runtime that a TrainJob names; nil if there is none.
	Runtime *v2alpha1.TrainingRuntimeSpec
	// RunningJobs counts the jobs that run in the namespace. It is asked only
	// when the answer will be shown.
	RunningJobs func() int
	// HidesQuota leaves the figures of quotas out of messages: the caller was not
	// verified, and may not be allowed to see them.
	HidesQuota bool
	// Bytes is the size of the object, without what the API server adds to it; 0
	// if not known.
	Bytes int
}

// Findings are everything that was found in an object.
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
func (findings *Findings) WarningTexts() (texts []string) {
	for _, warning := range findings.Warnings {
		texts = append(texts, warning.String())
	}
	return texts
}

// Invalid returns the findings as an API error. A quota fault has its own type of
// cause, so that clients need not read its message.
func (findings *Findings) Invalid(kind schema.GroupKind, name string) *apierrors.StatusError {
	invalid := apierrors.NewInvalid(kind, name, findings.Errors)
	for i, fault := range findings.Errors {
		if fault.Origin == string(quota.CauseExceeded) {
			invalid.ErrStatus.Details.Causes[i].Type = quota.CauseExceeded
		}
	}
	return invalid
}

func (findings *Findings) refuse(faults ...*field.Error) {
	findings.Errors = append(findings.Errors, faults...)
}

func (findings *Findings) warn(path *field.Path, format string, arguments ...any) {
	findings.Warnings = append(findings.Warnings, Warning{Field: path.String(), Message: fmt.Sprintf(format, arguments...)})
}

// atLeast refuses a number that is below its least value; unset is fine.
func atLeast[T int32 | int64](findings *Findings, path *field.Path, value *T, least T) {
	if value != nil && *value < least {
		findings.refuse(field.Invalid(path, *value, fmt.Sprintf("must be at least %d", least)))
	}
}

// maxDeadline is how many seconds fit a duration: 292 years. The operator would take
// more for a time that has passed.
const maxDeadline = int64(math.MaxInt64 / time.Second)

// deadline refuses seconds that are fewer than the least or do not fit a duration;
// unset is fine.
func deadline(findings *Findings, path *field.Path, seconds *int64, least int64) {
	atLeast(findings, path, seconds, least)
	if seconds != nil && *seconds > maxDeadline {
		findings.refuse(field.Invalid(path, *seconds, fmt.Sprintf("must be at most %d", maxDeadline)))
	}
}

// between refuses a number that is out of its range; unset is fine.
func between(findings *Findings, path *field.Path, name string, value *int32, least, most int32) {
	if value != nil && (*value < least || *value > most) {
		findings.refuse(field.Invalid(path, *value, fmt.Sprintf("%s must be between %d and %d", name, least, most)))
	}
}

// size refuses objects that etcd would refuse with less help.
func (rules *Rules) size(findings *Findings, bytes int) {
	if bytes > int(rules.Limits.MaxBytes) {
		findings.refuse(field.Invalid(field.NewPath("spec"), fmt.Sprintf("%d bytes", bytes),
			fmt.Sprintf("the object must have at most %d bytes; put large data into a ConfigMap or a volume", rules.Limits.MaxBytes)))
	}
}

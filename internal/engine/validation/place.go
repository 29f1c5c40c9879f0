// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	psaapi "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/quota"
)

// placeCheck validates a job of either kind against its cluster and namespace.
type placeCheck struct {
	rules            *Rules
	findings         *Findings
	job              *job.Job
	in               *ClusterFacts
	launcher, worker pods
	// Paths for errors about the whole job.
	name, workers, slots, priorityClass *field.Path
	minWorkers                          int64
	// quotaHeadline is the first line of a quota error; available may be empty.
	quotaHeadline func(requested, available string) string
}

func (pc *placeCheck) check() {
	pc.nameIsFree()
	pc.priorityClassExists()
	// The namespace of another cluster may have other rules.
	elsewhere := pc.job.ManagedBy != ""
	pc.rules.workerResources(pc.findings, pc.worker, pc.in, elsewhere)
	slotsMatchGPUs(pc.findings, pc.slots, pc.job.Slots, &pc.job.Worker.Template.Spec)
	pc.quota()
	if !elsewhere {
		pc.limitRanges()
		pc.podSecurity()
	}
}

// nameIsFree refuses the name of a job of the other kind: the pods of both kinds have
// the same names.
func (pc *placeCheck) nameIsFree() {
	if other := pc.in.OtherKind; other != "" {
		pc.findings.refuse(field.Invalid(pc.name, pc.job.Name,
			fmt.Sprintf("%s %s of this name already exists in the namespace, and their pods would have the same names; choose another name", article(other), other)))
	}
}

func article(kind job.Kind) string {
	if kind == job.KindMPIJob {
		return "an"
	}
	return "a"
}

func (pc *placeCheck) priorityClassExists() {
	missing := func(at *field.Path, name string) {
		pc.findings.refuse(field.Invalid(at, name, "PriorityClass does not exist; list them with kubectl get priorityclasses"))
	}
	own := pc.job.Gang.PriorityClass
	if own != "" && !pc.in.HasPriorityClass(own) {
		missing(pc.priorityClass, own)
	}
	for _, pods := range []pods{pc.launcher, pc.worker} {
		if name := pods.Template.Spec.PriorityClassName; name != "" && name != own && !pc.in.HasPriorityClass(name) {
			missing(pods.priorityClass, name)
		}
	}
}

// asStored returns a pod as Kubernetes stores it, with the fields that quotas count.
func asStored(pod *corev1.PodSpec, in *ClusterFacts) *corev1.PodSpec {
	pod = quota.WithLimitRanges(pod, in.LimitRanges)
	if pod.PriorityClassName == "" {
		pod.PriorityClassName = in.DefaultPriorityClass
	}
	return pod
}

func (pc *placeCheck) limitRanges() {
	if len(pc.in.LimitRanges) == 0 {
		return
	}
	for _, pods := range []pods{pc.launcher, pc.worker} {
		if pods.Replicas < 1 {
			continue
		}
		for _, violation := range quota.OutOfRange(asStored(&pods.Template.Spec, pc.in), pc.in.LimitRanges) {
			pc.findings.refuse(field.Forbidden(pods.resources, violation))
		}
	}
}

func (pc *placeCheck) quota() {
	if len(pc.in.Quotas) == 0 || pc.job.Launcher.Replicas < 0 || pc.job.Worker.Replicas < 0 {
		return
	}
	if reason := pc.waits(); reason != "" {
		pc.findings.warn(pc.workers, "%s, so the quota of the namespace is only checked when its pods are created", reason)
		return
	}
	demand := Demand(pc.job, pc.in, pc.minWorkers)
	quotas := pc.in.Quotas
	for _, pods := range []struct {
		spec *corev1.PodSpec
		pods
	}{{demand.Launcher.Spec, pc.launcher}, {demand.Workers.Spec, pc.worker}} {
		if pods.Replicas == 0 {
			continue
		}
		for _, unstated := range quota.UnstatedResources(pods.spec, quotas) {
			pc.findings.refuse(field.Required(pods.resources, fmt.Sprintf(
				"container %s must set %s, because ResourceQuota %s of the namespace counts it", unstated.Container, unstated.Resource, unstated.Quota)))
		}
	}
	shortages := quota.Shortages(demand, quotas)
	if len(shortages) == 0 {
		return
	}
	requested, available := quota.Brief(shortages)
	if pc.in.HidesQuota {
		pc.exceedsQuota(pc.quotaHeadline(requested, "") + "\n" + quota.ExplainWithoutFigures(demand, shortages))
		return
	}
	running := 0
	if pc.in.RunningJobs != nil {
		running = pc.in.RunningJobs()
	}
	pc.exceedsQuota(pc.quotaHeadline(requested, available) + "\n" +
		quota.Explain(demand, shortages, quota.FittingWorkers(demand, quotas), running))
}

func (pc *placeCheck) exceedsQuota(message string) {
	pc.findings.refuse(field.Forbidden(pc.workers, message).WithOrigin(string(quota.CauseExceeded)))
}

// waits returns why the pods of a job are not created yet.
func (pc *placeCheck) waits() string {
	switch {
	case pc.job.Suspended:
		return "the job is suspended"
	case pc.job.Queue != "":
		return fmt.Sprintf("the job waits in queue %s", pc.job.Queue)
	case pc.job.ManagedBy != "":
		return fmt.Sprintf("the job is managed by %s", pc.job.ManagedBy)
	}
	return ""
}

// Demand returns what a job requests from its namespace, as Kubernetes counts it.
func Demand(model *job.Job, in *ClusterFacts, minWorkers int64) *quota.Demand {
	return &quota.Demand{
		Launcher:   quota.Pods{Count: int64(model.Launcher.Replicas), Spec: asStored(&model.Launcher.Template.Spec, in)},
		Workers:    quota.Pods{Count: int64(model.Worker.Replicas), Spec: asStored(&model.Worker.Template.Spec, in)},
		Objects:    model.Objects(),
		MinWorkers: minWorkers,
	}
}

var (
	// podSecurity is the evaluator that the API server uses for pods.
	podSecurity = func() psapolicy.Evaluator {
		evaluator, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks(), nil)
		if err != nil {
			panic(err) // The checks are constants of the library.
		}
		return evaluator
	}()
	restricted = psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	// unlabelled is the policy of a namespace without labels.
	unlabelled = psaapi.Policy{Enforce: psaapi.LevelVersion{Level: psaapi.LevelPrivileged, Version: psaapi.LatestVersion()}}
)

// podSecurity refuses pods that the API server would refuse later. It warns of pods
// that the namespace allows but the level "restricted" does not.
func (pc *placeCheck) podSecurity() {
	enforced := enforcedLevel(pc.in.NamespaceLabels)
	for _, pods := range []pods{pc.launcher, pc.worker} {
		if len(pods.Template.Spec.Containers) == 0 {
			continue
		}
		template := withVolumeSources(&pods.Template)
		detail := violation(enforced, template)
		if detail != "" && !pc.rules.PodSecurityWarns {
			pc.findings.refuse(field.Forbidden(pods.at, fmt.Sprintf(
				"%s pods violate PodSecurity %q of the namespace: %s", pods.role, enforced.String(), detail)))
		} else if detail != "" {
			pc.findings.warn(pods.at, "%s pods would violate PodSecurity %q: %s", pods.role, enforced.String(), detail)
		} else if detail := violation(restricted, template); detail != "" {
			pc.findings.warn(pods.at, "%s pods would violate PodSecurity %q: %s", pods.role, restricted.String(), detail)
		}
	}
}

// enforcedLevel returns the level in the labels of a namespace. An invalid one counts
// as restricted, as in the API server.
func enforcedLevel(labels map[string]string) psaapi.LevelVersion {
	policy, _ := psaapi.PolicyToEvaluate(labels, unlabelled)
	return policy.Enforce
}

// PodSecurity returns the level that a namespace enforces, and how a template violates
// it; empty if it does not.
func PodSecurity(namespaceLabels map[string]string, template *corev1.PodTemplateSpec) (level, violated string) {
	enforced := enforcedLevel(namespaceLabels)
	return enforced.String(), violation(enforced, withVolumeSources(template))
}

// withVolumeSources returns the template as Kubernetes stores it: a volume without a
// source is an emptyDir.
func withVolumeSources(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	template = template.DeepCopy()
	for i := range template.Spec.Volumes {
		if volume := &template.Spec.Volumes[i]; volume.VolumeSource == (corev1.VolumeSource{}) {
			volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
	return template
}

func violation(level psaapi.LevelVersion, template *corev1.PodTemplateSpec) string {
	result := psapolicy.AggregateCheckResults(podSecurity.EvaluatePod(level, &template.ObjectMeta, &template.Spec))
	if result.Allowed {
		return ""
	}
	return result.ForbiddenDetail()
}

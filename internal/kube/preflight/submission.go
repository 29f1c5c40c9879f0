// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

// Submission has the facts that only matter before a job is submitted.
type Submission struct {
	// Rules are the findings of the admission rules with the operator's default limits.
	Rules Known[*validation.Findings]
	// DryRun: the job was created in a dry run. Refusal is the error of the API server.
	DryRun  bool
	Refusal error
	// Permissions of the user, in order.
	Permissions Known[[]Permission]
}

// Permission is something that a user may or may not do.
type Permission struct {
	// Action is a verb with its object: create trainjobs.
	Action  string
	Allowed bool
	// CreatesJobs: it is the permission to create jobs of a kind.
	CreatesJobs bool
	// Needed: the job cannot be submitted without it.
	Needed bool
}

// overrules reports whether the admission of this cluster has accepted a field. It
// knows the operator's configuration; the rules here only know its defaults.
func (s *Submission) overrules(name string) bool {
	// The API server only reports "already exists" after admission has accepted the job.
	if !s.DryRun || s.Refusal == nil || apierrors.IsAlreadyExists(s.Refusal) {
		return s.DryRun
	}
	var status apierrors.APIStatus
	if !errors.As(s.Refusal, &status) || status.Status().Details == nil || !strings.Contains(status.Status().Message, "admission webhook") {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == name })
}

// rules reports violations of the admission rules with the operator's default limits,
// unless the admission of this cluster has accepted the field.
func rules(facts *Facts) (findings []Finding) {
	known := facts.Submission.Rules
	if known.Unknown != "" {
		return unknown("Rules", known.Unknown)
	}
	if known.Value == nil {
		return nil
	}
	for _, fault := range known.Value.Errors {
		if !facts.Submission.overrules(fault.Field) {
			findings = append(findings, Finding{
				Rank: Certain, Title: fault.Field, Cause: fault.ErrorBody(), Fix: "Correct " + fault.Field + " in the file", Documentation: pageJobs,
			})
		}
	}
	for _, warning := range known.Value.Warnings {
		findings = append(findings, Finding{Rank: Note, Title: warning.Field, Cause: warning.Message, Documentation: pageJobs})
	}
	return findings
}

// dryRun reports why the API server refuses the job.
func dryRun(facts *Facts) []Finding {
	refusal := facts.Submission.Refusal
	switch {
	case !facts.Submission.DryRun:
		return nil
	case refusal == nil:
		return nil
	case apierrors.IsForbidden(refusal) && !isQuotaRefusal(refusal):
		return []Finding{{Rank: NotKnown, Title: "The dry run was not possible", Cause: "not known: " + refusal.Error()}}
	}
	finding := Finding{
		Rank: Certain, Title: "The API server refuses the job", Cause: causeText(refusal), Fix: "Correct these fields in the file", Documentation: pageJobs,
	}
	if apierrors.IsAlreadyExists(refusal) {
		finding.Title, finding.Cause, finding.Fix = "The name is already in use", refusal.Error(), fmt.Sprintf("Choose another name, or odh %s delete %s -n %s", facts.Kind.Type(), facts.Name, facts.Namespace)
	}
	if isQuotaRefusal(refusal) {
		finding.Title, finding.Cause, finding.Fix = "The API server refuses the job", "It exceeds the quota of the namespace.", "kubectl describe resourcequota -n "+facts.Namespace
	}
	return []Finding{finding}
}

// causeText joins the causes of a refusal.
func causeText(refusal error) string {
	var status apierrors.APIStatus
	if !errors.As(refusal, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return refusal.Error()
	}
	var causes []string
	for _, cause := range status.Status().Details.Causes {
		causes = append(causes, strings.TrimPrefix(cause.Field+": "+cause.Message, ": "))
	}
	return strings.Join(causes, "; ")
}

// isQuotaRefusal reports whether the API server refuses a job because of a quota alone.
func isQuotaRefusal(refusal error) bool {
	var status apierrors.APIStatus
	return errors.As(refusal, &status) && quota.IsExceeded(status.Status())
}

// permissions reports what the user may not do.
func permissions(facts *Facts) (findings []Finding) {
	known := facts.Submission.Permissions
	if known.Unknown != "" {
		return unknown("Permissions", known.Unknown)
	}
	for _, permission := range known.Value {
		if permission.Allowed {
			continue
		}
		finding := Finding{
			Rank: Possible, Title: "You may not " + permission.Action, Cause: "The job can run without this permission, but you cannot follow it.", Object: "namespace/" + facts.Namespace,
			Fix: fmt.Sprintf("Ask a cluster administrator for the role edit: kubectl create rolebinding odh-edit --clusterrole=edit --user=YOU -n %s", facts.Namespace), Documentation: pageOperator,
		}
		if permission.Needed || permission.CreatesJobs && !mayCreate(known.Value) {
			finding.Rank, finding.Cause = Certain, "You cannot submit the job without this permission."
		}
		findings = append(findings, finding)
	}
	return findings
}

// namespaceExists checks that the namespace exists.
func namespaceExists(facts *Facts) []Finding {
	switch {
	case facts.NamespaceObject.Unknown != "":
		return unknown("Namespace "+facts.Namespace, facts.NamespaceObject.Unknown)
	case facts.NamespaceObject.Value == nil:
		return []Finding{{
			Rank: Certain, Title: "Namespace " + facts.Namespace + " is missing", Object: "namespace/" + facts.Namespace,
			Fix: "kubectl create namespace " + facts.Namespace, Documentation: pageJobs,
		}}
	}
	return nil
}

// runtimeExists checks that the runtime of a TrainJob exists.
func runtimeExists(facts *Facts) []Finding {
	switch {
	case facts.RuntimeMissing:
		return []Finding{{
			Rank: Certain, Title: facts.RuntimeRef + " is missing", Cause: "The job refers to it in spec.runtimeRef.", Object: strings.ToLower(strings.Replace(facts.RuntimeRef, " ", "/", 1)),
			Fix: "Set spec.runtimeRef to an existing runtime; see odh runtime list -n " + facts.Namespace, Documentation: pageJobs,
		}}
	case facts.Job == nil && facts.NoModel != "":
		return unknown("Runtime", facts.NoModel)
	}
	return nil
}

// imageReachable checks whether nodes already have the images of the job. Registries
// cannot be checked from here.
func imageReachable(facts *Facts) (findings []Finding) {
	checked := map[string]bool{}
	for _, pod := range facts.templates() {
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			if !checked[container.Image] {
				findings = append(findings, facts.imageOnNodes(&container)...)
			}
			checked[container.Image] = true
		}
	}
	return append(findings, facts.missingPullSecrets()...)
}

func (facts *Facts) imageOnNodes(container *corev1.Container) []Finding {
	name, err := validation.ParseImage(container.Image)
	if err != nil {
		return []Finding{{
			Rank: Certain, Title: "Image " + container.Image + " is invalid", Cause: "It " + err.Error() + ".", Fix: "Correct the image name", Documentation: pageJobs,
		}}
	}
	if facts.Nodes.Unknown != "" {
		return unknown("Image "+container.Image, facts.Nodes.Unknown+", and its registry cannot be checked from here")
	}
	full := reference.TagNameOnly(name).String()
	for i := range facts.Nodes.Value {
		for _, present := range facts.Nodes.Value[i].Status.Images {
			if slices.Contains(present.Names, full) || slices.Contains(present.Names, container.Image) {
				return nil
			}
		}
	}
	if container.ImagePullPolicy == corev1.PullNever {
		return []Finding{{
			Rank: Likely, Title: "Image " + container.Image + " is on no node", Cause: "Its imagePullPolicy is Never, so nodes do not pull it.",
			Fix: "Set imagePullPolicy to IfNotPresent, or load the image onto the nodes", Documentation: pageJobs,
		}}
	}
	return unknown("Image "+container.Image, "no node has it yet, and its registry cannot be checked from here")
}

// slots warns of more MPI processes than GPUs.
func slots(facts *Facts) []Finding {
	if facts.Job == nil {
		return nil
	}
	gpus, order := validation.CompareSlots(facts.Job.Slots, &facts.Job.Worker.Template.Spec)
	if order <= 0 {
		return nil
	}
	return []Finding{{
		Rank: Possible, Title: "More slots than GPUs", Cause: fmt.Sprintf("Each worker runs %d MPI processes on %s.", facts.Job.Slots, count(int(gpus.Value()), "GPU")),
		Fix: fmt.Sprintf("Set slotsPerWorker to %d, so that each process has a GPU", gpus.Value()), Documentation: pageJobs,
	}}
}

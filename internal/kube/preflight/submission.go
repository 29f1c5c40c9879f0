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

// Submission is what only matters before a job is submitted.
type Submission struct {
	// Rules are what the rules of admission find, with the limits that the operator
	// has by default.
	Rules Known[*validation.Findings]
	// DryRun: the API server was asked to create the job without storing it, and
	// Refusal is what it had against it.
	DryRun  bool
	Refusal error
	// Rights are what the user may do, in order.
	Rights Known[[]Right]
}

// Right is something that a user may do, or not.
type Right struct {
	// What in words: create trainjobs.
	What    string
	Allowed bool
	// Needed: without it a job cannot be submitted.
	Needed bool
}

// overrules tells whether this cluster's admission has judged the job, and has
// nothing against a field. It knows how the operator is configured.
func (submission *Submission) overrules(name string) bool {
	// A name is found to be taken only when all else is right.
	if !submission.DryRun || submission.Refusal == nil || apierrors.IsAlreadyExists(submission.Refusal) {
		return submission.DryRun
	}
	var status apierrors.APIStatus
	if !errors.As(submission.Refusal, &status) || status.Status().Details == nil || !strings.Contains(status.Status().Message, "admission webhook") {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool { return cause.Field == name })
}

// rules are the rules of admission, with the limits that the operator has by default.
// Where this cluster's own admission has judged the job, its word holds.
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

// dryRun is what the API server has against the job.
func dryRun(facts *Facts) []Finding {
	refusal := facts.Submission.Refusal
	switch {
	case !facts.Submission.DryRun:
		return nil
	case refusal == nil:
		return nil
	case apierrors.IsForbidden(refusal) && !isQuotaRefusal(refusal):
		return []Finding{{Rank: NotKnown, Title: "The API server was not asked", Cause: "not known: " + refusal.Error()}}
	}
	finding := Finding{
		Rank: Certain, Title: "The API server refuses the job", Cause: words(refusal), Fix: "Correct what it names in the file", Documentation: pageJobs,
	}
	if apierrors.IsAlreadyExists(refusal) {
		finding.Title, finding.Cause, finding.Fix = "The name is taken", refusal.Error(), fmt.Sprintf("Choose another name, or odh %s delete %s -n %s", facts.Kind.Type(), facts.Name, facts.Namespace)
	}
	if isQuotaRefusal(refusal) {
		finding.Title, finding.Cause, finding.Fix = "The API server refuses the job", "Its quota has no room for it.", "kubectl describe resourcequota -n "+facts.Namespace
	}
	return []Finding{finding}
}

// words of a refusal: each of its causes.
func words(refusal error) string {
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

// rights are what the user may not do.
func rights(facts *Facts) (findings []Finding) {
	known := facts.Submission.Rights
	if known.Unknown != "" {
		return unknown("Rights", known.Unknown)
	}
	for _, right := range known.Value {
		if right.Allowed {
			continue
		}
		finding := Finding{
			Rank: Possible, Title: "You may not " + right.What, Cause: "The job runs without it, but you do not see what becomes of it.", Object: "namespace/" + facts.Namespace,
			Fix: fmt.Sprintf("Have an administrator give you the role edit: kubectl create rolebinding odh-edit --clusterrole=edit --user=YOU -n %s", facts.Namespace), Documentation: pageOperator,
		}
		if right.Needed || strings.HasPrefix(right.What, "create ") && !mayCreate(known.Value) {
			finding.Rank, finding.Cause = Certain, "A job cannot be submitted without it."
		}
		findings = append(findings, finding)
	}
	return findings
}

// placeExists looks for the namespace.
func placeExists(facts *Facts) []Finding {
	switch {
	case facts.Place.Unknown != "":
		return unknown("Namespace "+facts.Namespace, facts.Place.Unknown)
	case facts.Place.Value == nil:
		return []Finding{{
			Rank: Certain, Title: "Namespace " + facts.Namespace + " is missing", Object: "namespace/" + facts.Namespace,
			Fix: "kubectl create namespace " + facts.Namespace, Documentation: pageJobs,
		}}
	}
	return nil
}

// runtimeExists looks for the runtime that a TrainJob names.
func runtimeExists(facts *Facts) []Finding {
	switch {
	case facts.RuntimeMissing:
		return []Finding{{
			Rank: Certain, Title: facts.RuntimeRef + " is missing", Cause: "The job is made from it.", Object: strings.ToLower(strings.Replace(facts.RuntimeRef, " ", "/", 1)),
			Fix: "Name one that there is in spec.runtimeRef; see odh runtime list -n " + facts.Namespace, Documentation: pageJobs,
		}}
	case facts.Job == nil && facts.NoModel != "":
		return unknown("Runtime", facts.NoModel)
	}
	return nil
}

// imageReachable looks for the images of the job on the nodes. A registry cannot be
// asked from here.
func imageReachable(facts *Facts) (findings []Finding) {
	seen := map[string]bool{}
	for _, pod := range facts.templates() {
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			if !seen[container.Image] {
				findings = append(findings, facts.imageOnNodes(&container)...)
			}
			seen[container.Image] = true
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
		return unknown("Image "+container.Image, facts.Nodes.Unknown+", and a registry cannot be asked from here")
	}
	full := reference.TagNameOnly(name).String()
	for i := range facts.Nodes.Value {
		for _, there := range facts.Nodes.Value[i].Status.Images {
			if slices.Contains(there.Names, full) || slices.Contains(there.Names, container.Image) {
				return nil
			}
		}
	}
	if container.ImagePullPolicy == corev1.PullNever {
		return []Finding{{
			Rank: Likely, Title: "Image " + container.Image + " is on no node", Cause: "Its imagePullPolicy is Never, so that nobody fetches it.",
			Fix: "Set imagePullPolicy to IfNotPresent, or load the image onto the nodes", Documentation: pageJobs,
		}}
	}
	return unknown("Image "+container.Image, "it is on no node yet, and a registry cannot be asked from here")
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
		Rank: Possible, Title: "More slots than GPUs", Cause: fmt.Sprintf("%d MPI processes share %s of a worker.", facts.Job.Slots, count(int(gpus.Value()), "GPU")),
		Fix: fmt.Sprintf("Set slotsPerWorker to %d, so that each process has a GPU", gpus.Value()), Documentation: pageJobs,
	}}
}

package preflight

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// storage finds claims that pods wait for.
func storage(facts *Facts) (findings []Finding) {
	if facts.hasSucceeded() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(facts.Claims)) {
		findings = append(findings, facts.claim(name)...)
	}
	for _, name := range slices.Sorted(maps.Keys(facts.StorageClasses)) {
		class := facts.StorageClasses[name]
		switch {
		case class.Unknown != "":
			findings = append(findings, unknown("StorageClass "+name, class.Unknown)...)
		case !class.Value:
			findings = append(findings, Finding{
				Rank: facts.rank(Certain, training.StepScheduled), Title: "StorageClass " + name + " is missing", Cause: "The claim that the job makes never gets a volume.",
				Object: "storageclass/" + name, Fix: "Name one that there is in spec.initializer.storage.storageClassName; see kubectl get storageclass", Documentation: pageData,
			})
		}
	}
	return findings
}

func (facts *Facts) claim(name string) []Finding {
	known := facts.Claims[name]
	found := Finding{
		Rank: facts.rank(Certain, training.StepScheduled), Object: "persistentvolumeclaim/" + name, Documentation: pageData,
		Fix: fmt.Sprintf("kubectl describe pvc %s -n %s", name, facts.Namespace),
	}
	switch {
	case known.Unknown != "":
		return unknown("PersistentVolumeClaim "+name, known.Unknown)
	case known.Value == nil && facts.makesClaim(name):
		return nil
	case known.Value == nil:
		found.Title, found.Cause = "PersistentVolumeClaim "+name+" is missing", "Pods name it, and are not placed before it is there."
		found.Fix = fmt.Sprintf("Create it, or name one that there is: kubectl get pvc -n %s", facts.Namespace)
	case known.Value.Status.Phase == corev1.ClaimLost:
		found.Title, found.Cause = "PersistentVolumeClaim "+name+" has lost its volume", "The PersistentVolume that it was bound to is gone."
	case known.Value.Status.Phase == corev1.ClaimPending:
		// One whose class waits for a pod is pending until there is one.
		found.Rank = facts.rank(Possible, training.StepScheduled)
		found.Title, found.Cause = "PersistentVolumeClaim "+name+" has no volume yet", "It is pending: its StorageClass makes no volume, or waits for the first pod."
	case facts.severalNodes() && onlyOneNode(known.Value):
		found.Rank = facts.rank(Possible, training.StepScheduled)
		found.Title = "PersistentVolumeClaim " + name + " can be mounted on one node only"
		found.Cause = fmt.Sprintf("Its access modes are %v, and the job has several pods: those on other nodes wait for ever.", known.Value.Spec.AccessModes)
		found.Fix = "Use a claim with the access mode ReadWriteMany or ReadOnlyMany"
	default:
		return nil
	}
	return []Finding{found}
}

// makesClaim tells whether the operator makes a claim by itself.
func (facts *Facts) makesClaim(name string) bool {
	return facts.Job != nil && facts.Job.Initializer != nil && facts.Job.Initializer.ClaimName == "" && name == plan.NamesOf(facts.Job).Workspace
}

func (facts *Facts) severalNodes() bool {
	return facts.Job != nil && facts.Job.Worker.Replicas > 1 && len(facts.Nodes.Value) != 1
}

func onlyOneNode(claim *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claim.Spec.AccessModes, func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany
	})
}

// claimNames are the claims that a job's pods name.
func (facts *Facts) claimNames() (names []string) {
	for _, pod := range facts.templates() {
		for i := range pod.Volumes {
			if claim := pod.Volumes[i].PersistentVolumeClaim; claim != nil && !slices.Contains(names, claim.ClaimName) {
				names = append(names, claim.ClaimName)
			}
		}
	}
	if facts.Job != nil {
		if workspace := plan.NamesOf(facts.Job).Workspace; workspace != "" && !slices.Contains(names, workspace) {
			names = append(names, workspace)
		}
	}
	slices.Sort(names)
	return names
}

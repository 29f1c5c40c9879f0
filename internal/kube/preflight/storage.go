// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/plan"
)

// storage finds PVCs and StorageClasses that pods wait for.
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
				Rank: facts.rank(Certain, training.StepScheduled), Title: "StorageClass " + name + " is missing", Cause: "The PVC that the operator creates for the job never gets a volume.",
				Object: "storageclass/" + name, Fix: "Set spec.initializer.storage.storageClassName to an existing StorageClass; see kubectl get storageclass", Documentation: pageData,
				waits: &Waiting{Cause: WaitVolumeMissing},
			})
		}
	}
	return findings
}

func (facts *Facts) claim(name string) []Finding {
	known := facts.Claims[name]
	finding := Finding{
		Rank: facts.rank(Certain, training.StepScheduled), Object: "persistentvolumeclaim/" + name, Documentation: pageData,
		Fix: fmt.Sprintf("kubectl describe pvc %s -n %s", name, facts.Namespace),
	}
	switch {
	case known.Unknown != "":
		return unknown("PersistentVolumeClaim "+name, known.Unknown)
	case known.Value == nil && facts.createsClaim(name):
		return nil
	case known.Value == nil:
		finding.Title, finding.Cause = "PersistentVolumeClaim "+name+" is missing", "The job's pods mount it, and are not scheduled until it exists."
		finding.Fix = fmt.Sprintf("Create it, or use an existing PVC: kubectl get pvc -n %s", facts.Namespace)
		finding.waits = &Waiting{Cause: WaitVolumeMissing}
	case known.Value.Status.Phase == corev1.ClaimLost:
		finding.Title, finding.Cause = "PersistentVolumeClaim "+name+" has lost its volume", "The PersistentVolume that it was bound to does not exist any more."
		finding.waits = &Waiting{Cause: WaitVolumeMissing}
	case known.Value.Status.Phase == corev1.ClaimPending:
		// With volumeBindingMode WaitForFirstConsumer, it is pending until a pod uses it.
		finding.Rank = facts.rank(Possible, training.StepScheduled)
		finding.Title, finding.Cause = "PersistentVolumeClaim "+name+" has no volume yet", "It is pending: its StorageClass does not provision a volume, or waits for the first pod."
	case facts.severalNodes() && onlyOneNode(known.Value):
		finding.Rank = facts.rank(Possible, training.StepScheduled)
		finding.Title = "PersistentVolumeClaim " + name + " can be mounted on one node only"
		finding.Cause = fmt.Sprintf("Its access modes are %v, and the job has several pods: pods on other nodes wait forever.", known.Value.Spec.AccessModes)
		finding.Fix = "Use a PVC with the access mode ReadWriteMany or ReadOnlyMany"
	default:
		return nil
	}
	return []Finding{finding}
}

// createsClaim reports whether the operator creates a PVC itself.
func (facts *Facts) createsClaim(name string) bool {
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

// claimNames are the PVCs that the job's pods mount.
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

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// imageReasons are the waiting reasons of containers without their image.
var imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}

// otherChecks are pod reasons that another check reports.
var otherChecks = append([]string{"", "Unschedulable", "SchedulingGated", "Completed"}, imageReasons...)

// pods reports the problems of single pods in the job's status: out of memory,
// crashing, cannot start. Pods with the same reason are one finding.
func pods(facts *Facts) []Finding {
	if facts.hasFailed() || facts.hasSucceeded() {
		return nil
	}
	type group struct {
		first training.PodStatus
		pods  int
	}
	groups, order := map[string]*group{}, []string{}
	for _, pod := range facts.podStatuses() {
		if slices.Contains(otherChecks, pod.Reason) {
			continue
		}
		if groups[pod.Reason] == nil {
			groups[pod.Reason] = &group{first: pod}
			order = append(order, pod.Reason)
		}
		groups[pod.Reason].pods++
	}
	var findings []Finding
	for _, reason := range order {
		group := groups[reason]
		findings = append(findings, Finding{
			Rank: Likely, Title: fmt.Sprintf("%s: %s", count(group.pods, "pod"), reason), Cause: group.first.Message, Object: "pod/" + group.first.Name,
			Fix: fmt.Sprintf("kubectl describe pod %s -n %s", group.first.Name, facts.Namespace), Documentation: pageFailures,
			waits: &Waiting{Cause: WaitContainer, Since: facts.createdAt(group.first.Name)},
		})
	}
	return findings
}

func (facts *Facts) podStatuses() (statuses []training.PodStatus) {
	for _, worker := range facts.Previous.WorkerPodStatuses {
		statuses = append(statuses, worker.PodStatus)
	}
	if launcher := facts.Previous.LauncherPodStatus; launcher != nil {
		statuses = append(statuses, *launcher)
	}
	return statuses
}

// gates reports pods that controllers keep from being scheduled.
func gates(facts *Facts) []Finding {
	if facts.hasFailed() || facts.hasSucceeded() {
		return nil
	}
	var names, held []string
	for i := range facts.Pods.Value {
		pod := &facts.Pods.Value[i]
		for _, gate := range pod.Spec.SchedulingGates {
			if !slices.Contains(names, gate.Name) {
				names = append(names, gate.Name)
			}
		}
		if len(pod.Spec.SchedulingGates) > 0 {
			held = append(held, pod.Name)
		}
	}
	if len(held) == 0 {
		return nil
	}
	slices.Sort(names)
	slices.Sort(held)
	return []Finding{{
		Rank: Likely, Title: fmt.Sprintf("%s may not be scheduled yet: %s", count(len(held), "pod"), strings.Join(names, ", ")),
		Cause:  "The controllers that have added these scheduling gates have not removed them. The scheduler ignores the pods until then.",
		Object: "pod/" + held[0], Fix: fmt.Sprintf("kubectl get pod %s -n %s -o jsonpath='{.spec.schedulingGates} {.metadata.managedFields[*].manager}'", held[0], facts.Namespace), Documentation: pageFailures,
		waits: &Waiting{Cause: WaitGates, Since: facts.createdAt(held[0])},
	}}
}

// image reports why pods cannot pull their images.
func image(facts *Facts) []Finding {
	if facts.Pods.Unknown != "" && facts.Stored {
		return unknown("Images", facts.Pods.Unknown)
	}
	return slices.Concat(facts.imagesThatWait(), facts.pullsInProgress(), facts.missingPullSecrets())
}

// imagesThatWait finds images that pods cannot pull, one finding for each image.
func (facts *Facts) imagesThatWait() []Finding {
	type stuck struct {
		pod    *corev1.Pod
		status *corev1.ContainerStatus
		pods   int
	}
	groups, order := map[string]*stuck{}, []string{}
	for i := range facts.Pods.Value {
		pod := &facts.Pods.Value[i]
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if status.State.Waiting == nil || !slices.Contains(imageReasons, status.State.Waiting.Reason) {
				continue
			}
			if groups[status.Image] == nil {
				groups[status.Image] = &stuck{pod: pod, status: status.DeepCopy()}
				order = append(order, status.Image)
			}
			groups[status.Image].pods++
			break
		}
	}
	slices.Sort(order)
	var findings []Finding
	for _, name := range order {
		blocked := groups[name]
		waiting := blocked.status.State.Waiting
		findings = append(findings, Finding{
			Rank: facts.rank(Certain, training.StepPodsReady, training.FailureLauncher, training.FailureWorker), Title: fmt.Sprintf("%s cannot pull image %s", count(blocked.pods, "pod"), name),
			Cause: fmt.Sprintf("%s: %s", waiting.Reason, strings.TrimSpace(waiting.Message)), Object: "pod/" + blocked.pod.Name,
			Fix: facts.imageFix(waiting.Reason, blocked.pod), Documentation: pageFailures,
			waits: &Waiting{Cause: WaitImageFailing, Image: name, Since: facts.pullingSince(blocked.pod)},
		})
	}
	return findings
}

func (facts *Facts) imageFix(reason string, pod *corev1.Pod) string {
	switch reason {
	case "InvalidImageName":
		return "Correct the image in the job: registry/name:tag"
	case "ErrImageNeverPull":
		return "Set imagePullPolicy to IfNotPresent, or load the image onto the nodes"
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		return fmt.Sprintf("Correct the image's name or tag in the job; if its registry requires a login: kubectl create secret docker-registry NAME -n %s, and add it to imagePullSecrets", facts.Namespace)
	}
	return fmt.Sprintf("Correct the image's name or tag in the job, or the login in: kubectl get secret %s -n %s", pod.Spec.ImagePullSecrets[0].Name, facts.Namespace)
}

func (facts *Facts) missingPullSecrets() (findings []Finding) {
	for _, name := range facts.pullSecretNames() {
		switch secret := facts.PullSecrets[name]; {
		case secret.Unknown != "":
			findings = append(findings, unknown("imagePullSecret "+name, secret.Unknown)...)
		case !secret.Value:
			findings = append(findings, Finding{
				Rank: facts.rank(Possible, training.StepPodsReady, training.FailureLauncher, training.FailureWorker), Title: "imagePullSecret " + name + " is missing",
				Cause: "The job's pods refer to it; without it their images are pulled without a login.", Object: "secret/" + name,
				Fix: fmt.Sprintf("kubectl create secret docker-registry %s -n %s", name, facts.Namespace), Documentation: pageFailures,
			})
		}
	}
	return findings
}

// pullSecretNames are the imagePullSecrets of the pods, sorted.
func (facts *Facts) pullSecretNames() (names []string) {
	for _, pod := range facts.templates() {
		for _, secret := range pod.ImagePullSecrets {
			if secret.Name != "" && !slices.Contains(names, secret.Name) {
				names = append(names, secret.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

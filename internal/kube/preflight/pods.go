package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
)

// imageReasons are why a container waits for its image.
var imageReasons = []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"}

// otherChecks are reasons of pods that another check explains.
var otherChecks = append([]string{"", "Unschedulable", "SchedulingGated", "Completed"}, imageReasons...)

// pods is what the operator says of single pods: out of memory, crashing, not
// startable. Those with the same reason are one finding.
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
		found := groups[reason]
		findings = append(findings, Finding{
			Rank: Likely, Title: fmt.Sprintf("%s: %s", count(found.pods, "pod"), reason), Cause: found.first.Message, Object: "pod/" + found.first.Name,
			Fix: fmt.Sprintf("kubectl describe pod %s -n %s", found.first.Name, facts.Namespace), Documentation: pageFailures,
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

// image is what keeps pods from getting their images.
func image(facts *Facts) []Finding {
	if facts.Pods.Unknown != "" && facts.Stored {
		return unknown("Images", facts.Pods.Unknown)
	}
	return append(facts.imagesThatWait(), facts.missingPullSecrets()...)
}

// imagesThatWait finds the images that pods cannot get, one finding for each.
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
		found := groups[name]
		waiting := found.status.State.Waiting
		findings = append(findings, Finding{
			Rank: facts.rank(Certain, training.StepPodsReady, training.FailureLauncher, training.FailureWorker), Title: fmt.Sprintf("%s cannot get image %s", count(found.pods, "pod"), name),
			Cause: fmt.Sprintf("%s: %s", waiting.Reason, strings.TrimSpace(waiting.Message)), Object: "pod/" + found.pod.Name,
			Fix: facts.imageFix(waiting.Reason, found.pod), Documentation: pageFailures,
		})
	}
	return findings
}

func (facts *Facts) imageFix(reason string, pod *corev1.Pod) string {
	switch reason {
	case "InvalidImageName":
		return "Correct the image in the job; it is written registry/name:tag"
	case "ErrImageNeverPull":
		return "Set imagePullPolicy to IfNotPresent, or load the image onto the nodes"
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		return fmt.Sprintf("Correct the image's name or tag in the job; if its registry wants a login: kubectl create secret docker-registry NAME -n %s, and name it in imagePullSecrets", facts.Namespace)
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
				Cause: "Pods name it, and images of its registry are asked for without a login.", Object: "secret/" + name,
				Fix: fmt.Sprintf("kubectl create secret docker-registry %s -n %s", name, facts.Namespace), Documentation: pageFailures,
			})
		}
	}
	return findings
}

// pullSecretNames are the Secrets that pods name for their images, sorted.
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

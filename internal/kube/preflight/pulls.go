// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the kubelet's events.
const (
	reasonPulling = "Pulling"
	reasonPulled  = "Pulled"
)

// pulledImage finds the image in the kubelet's messages: Pulling image "a", Successfully
// pulled image "a" in 3s, Container image "a" already present on machine.
var pulledImage = regexp.MustCompile(`image "([^"]+)"`)

// pull is an image that nodes are pulling.
type pull struct {
	pods  []string
	since time.Time
}

// pullsInProgress finds images that nodes are still pulling, one finding for each.
func (facts *Facts) pullsInProgress() (findings []Finding) {
	pulls := facts.pulls()
	for _, image := range slices.Sorted(maps.Keys(pulls)) {
		found := pulls[image]
		slices.Sort(found.pods)
		lasts := facts.Now.Sub(found.since).Round(time.Second)
		finding := Finding{
			Rank: Note, Title: fmt.Sprintf("%s pulling image %s", isOrAre(len(found.pods)), image),
			Cause: fmt.Sprintf("It has taken %s so far. The job starts when all of its pods are ready.", lasts), Object: "pod/" + found.pods[0],
			Fix: fmt.Sprintf("Wait, or use a smaller image; see kubectl get events -n %s --field-selector involvedObject.name=%s", facts.Namespace, found.pods[0]), Documentation: pageFailures,
			waits: &Waiting{Cause: WaitImage, Image: image, Since: &metav1.Time{Time: found.since}},
		}
		if lasts >= maxUnexplained {
			finding.Rank = Likely
		}
		findings = append(findings, finding)
	}
	return findings
}

func isOrAre(pods int) string {
	if pods == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", pods)
}

// pulls returns the images that pods of the job wait for, since their first pull.
func (facts *Facts) pulls() map[string]*pull {
	pulls := map[string]*pull{}
	for i := range facts.Pods.Value {
		pod := &facts.Pods.Value[i]
		if !isCreating(pod) {
			continue
		}
		image, since := facts.lastPull(pod.Name)
		if image == "" {
			continue
		}
		if pulls[image] == nil {
			pulls[image] = &pull{since: since}
		}
		pulls[image].pods = append(pulls[image].pods, pod.Name)
		if since.Before(pulls[image].since) {
			pulls[image].since = since
		}
	}
	return pulls
}

// pullingSince is when the node of a pod first tried to pull an image for it, or else when
// the pod got its node.
func (facts *Facts) pullingSince(pod *corev1.Pod) *metav1.Time {
	first := scheduledSince(pod)
	for i := range facts.Pulls {
		if event := &facts.Pulls[i]; event.InvolvedObject.Name == pod.Name && event.Reason == reasonPulling && !event.FirstTimestamp.IsZero() && event.FirstTimestamp.Before(first) {
			first = &event.FirstTimestamp
		}
	}
	return first
}

// isCreating reports whether a container of a pod has not been created yet.
func isCreating(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(status corev1.ContainerStatus) bool {
		return status.State.Waiting != nil && (status.State.Waiting.Reason == "ContainerCreating" || status.State.Waiting.Reason == "PodInitializing")
	})
}

// lastPull returns the image that the node of a pod is pulling, and since when.
func (facts *Facts) lastPull(pod string) (image string, since time.Time) {
	for i := range facts.Pulls {
		event := &facts.Pulls[i]
		match := pulledImage.FindStringSubmatch(event.Message)
		if event.InvolvedObject.Name == pod && event.Reason == reasonPulling && match != nil && !lastSeen(event).Before(since) {
			image, since = match[1], lastSeen(event)
		}
	}
	for i := range facts.Pulls {
		event := &facts.Pulls[i]
		match := pulledImage.FindStringSubmatch(event.Message)
		if event.InvolvedObject.Name == pod && event.Reason == reasonPulled && match != nil && match[1] == image && !lastSeen(event).Before(since) {
			return "", time.Time{}
		}
	}
	return image, since
}

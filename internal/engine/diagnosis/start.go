// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// startAdvice is the advice for a container that could not be started. It parses the
// messages of runc, containerd and the kubelet; no other code does.
func startAdvice(pod *corev1.Pod, message string) string {
	contains := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(message, part) {
				return true
			}
		}
		return false
	}
	switch {
	case contains(`mounting "`, "to rootfs at", "subPath", "volumeMount", "failed to generate spec: failed to mkdir", "failed to generate spec: failed to stat"):
		return "Check the volume and its mount in the pod template: the source and its subPath must exist, and a file cannot be mounted over a directory."
	case contains("chdir to cwd"):
		return "The container's workingDir must exist in the image, and its user must be allowed to enter it."
	case contains("runAsNonRoot", "unable to find user", "unable to setup user"):
		return "Set runAsUser in the security context to a user that the image can run as."
	case contains(`exec: "`, "executable file not found", "exec format error"):
		return "The command must exist in the image and be executable."
	case contains(`secret "`, `configmap "`, "couldn't find key"):
		return "Create the Secret or ConfigMap that it names, or correct the pod template."
	default:
		return describeAdvice(pod)
	}
}

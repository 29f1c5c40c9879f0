// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The texts after "runc create failed" are runc 1.1's own, recorded, except that of a
// working directory; containerd's wrapping and the kubelet's texts are as users have
// reported them.
func TestStartAdvice(t *testing.T) {
	const runc = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: "
	tests := map[string]struct{ message, want string }{
		"a volume whose source is missing": {
			message: runc + `error during container init: error mounting "/nonexistent/vol" to rootfs at "/data/train.h5": stat /nonexistent/vol: no such file or directory: unknown`,
			want:    "Check the volume and its mount",
		},
		"a volume, in an older runc": {
			message: `OCI runtime create failed: container_linux.go:370: starting container process caused: rootfs_linux.go:59: mounting "/var/lib/kubelet/pods/7/volume-subpaths/c/1" to rootfs at "/merged/etc/a.json" caused: no such file or directory`,
			want:    "Check the volume and its mount",
		},
		"a subPath":                  {message: `failed to prepare subPath for volumeMount "data" of container "main"`, want: "Check the volume and its mount"},
		"a command that is missing":  {message: runc + `exec: "mpirun": executable file not found in $PATH: unknown`, want: "The command must exist in the image"},
		"a command that may not run": {message: runc + `exec: "/data": permission denied: unknown`, want: "The command must exist in the image"},
		"a working directory":        {message: runc + `error during container init: chdir to cwd ("/workspace") set in config.json failed: permission denied`, want: "workingDir"},
		"a user":                     {message: "container has runAsNonRoot and image will run as root", want: "runAsUser"},
		"a Secret":                   {message: `secret "token" not found`, want: "Create the Secret or ConfigMap"},
		"a key of a ConfigMap":       {message: "couldn't find key lr in ConfigMap team/settings", want: "Create the Secret or ConfigMap"},
		"something else":             {message: "context deadline exceeded", want: "kubectl describe pod train-launcher -n team"},
		"nothing":                    {want: "kubectl describe pod train-launcher -n team"},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "train-launcher"}}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := startAdvice(pod, tc.message); !strings.Contains(got, tc.want) {
				t.Errorf("advice %q, want %q", got, tc.want)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const hostImage = "trireme.local/host:test"

// Pods of the image, and no others, see the directory, and cannot change it. What runs
// while containerd is restarted keeps running.
func TestContainersSeeTheProgramsOfTheMachine(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "programs")
	if err := os.MkdirAll(marker, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(marker, "of-the-machine"), []byte("seen\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	// The directories above it belong to root alone.
	for directory := marker; directory != os.TempDir(); directory = filepath.Dir(directory) {
		if err := os.Chmod(directory, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ns := namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	create(t, ns, newPod("before", "sleep 600"))
	awaitPhase(t, ns, "before", corev1.PodRunning)
	cluster.must(t, "image", "from-host", hostImage, "--directory", "/usr,"+marker)
	script := "cat " + marker + "/of-the-machine; touch " + marker + "/x 2>&1 | grep -o 'Read-only.*'; cat /etc/shadow 2>&1 | grep -o 'No such.*'"
	ofHost := newPod("of-the-machine", script, func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = hostImage })
	if got, want := succeed(t, ns, ofHost), "seen\nRead-only file system\nNo such file or directory\n"; got != want {
		t.Errorf("a pod of the image printed %q, want %q", got, want)
	}
	if got := succeed(t, ns, newPod("another", "ls "+marker+" 2>&1 | grep -o 'No such.*'")); got != "No such file or directory\n" {
		t.Errorf("a pod of another image sees the directory: %q", got)
	}
	if got := execute(t, ns, "before", "echo", "still here"); got != "still here\n" {
		t.Errorf("the pod that ran before printed %q", got)
	}
}

// A cluster comes up from a bundle where there is no Go, no Debian package and nothing on
// the PATH, and Trireme is installed from it.
func TestBundle(t *testing.T) {
	if os.Getenv("THOROUGH") == "" {
		t.Skip("it compiles Trireme and compresses all programs: make test-all runs it")
	}
	directory := t.TempDir()
	file, unpacked := filepath.Join(directory, "bundle"), filepath.Join(directory, "unpacked")
	cluster.must(t, "bundle", file, "--compression", "3")
	bare := func(program string, arguments ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, program, arguments...)
		command.Dir = "/"
		command.Env = []string{"HOME=" + directory, "PATH=/usr/bin:/bin", "TRIREME_CLUSTER_NAME=trireme-bundle", "TRIREME_CLUSTER_NETWORK=10.182.0.0/16"}
		var output bytes.Buffer
		command.Stdout, command.Stderr = &output, &output
		if err := command.Run(); err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(arguments, " "), err, output.String())
		}
		return output.String()
	}
	bare(file, unpacked)
	tool := filepath.Join(unpacked, "bin", "cluster")
	t.Cleanup(func() { bare(tool, "reset", "--images") })
	bare(tool, "up")
	bare(filepath.Join(unpacked, "install"))
	pods := bare(tool, "kubectl", "get", "pods", "--namespace", "trireme-system", "--output", "jsonpath={range .items[*]}{.spec.containers[0].image} {.status.phase}{'\\n'}{end}")
	for _, want := range []string{"trireme.local/operator:", "trireme.local/server:"} {
		if !strings.Contains(pods, want) || strings.Contains(pods, "Pending") {
			t.Errorf("the pods of Trireme are\n%s", pods)
		}
	}
	if status := bare(tool, "status"); !strings.Contains(status, "Ready") {
		t.Errorf("status of the cluster:\n%s", status)
	}
}

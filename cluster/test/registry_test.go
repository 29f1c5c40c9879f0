// SPDX-License-Identifier: Apache-2.0

//go:build linux

package test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// startRegistry starts the registry and returns the settings that it prints.
func startRegistry(t *testing.T) map[string]string {
	t.Helper()
	cluster.must(t, "registry", "up")
	settings := map[string]string{}
	for _, line := range strings.Split(cluster.must(t, "registry", "env"), "\n") {
		if name, value, found := strings.Cut(strings.TrimPrefix(line, "export "), "="); found {
			settings[name] = value
		}
	}
	return settings
}

// push pushes a program that prints its argument, and returns its digest reference.
func push(t *testing.T, reference, text string) string {
	t.Helper()
	source, binary := filepath.Join(t.TempDir(), "greet.go"), filepath.Join(t.TempDir(), "greet")
	if err := os.WriteFile(source, fmt.Appendf(nil, "package main\n\nfunc main() { println(%q) }\n", text), 0o600); err != nil {
		t.Fatal(err)
	}
	build(t, source, binary)
	lines := strings.Fields(cluster.must(t, "registry", "push", binary, reference))
	return lines[len(lines)-1]
}

// pulled is a pod of an image that must be pulled.
func pulled(name, image string, secrets ...string) *corev1.Pod {
	return newPod(name, "", func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Image, pod.Spec.Containers[0].Command = image, nil
		pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		for _, secret := range secrets {
			pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
		}
	})
}

func TestPodsPullFromTheRegistry(t *testing.T) {
	settings := startRegistry(t)
	image := push(t, settings["REGISTRY"]+"/team/greet:1", "pulled")
	if !strings.HasPrefix(image, settings["REGISTRY"]+"/team/greet@sha256:") {
		t.Fatalf("push printed %q", image)
	}
	if got := succeed(t, namespace(t, nil), pulled("greet", image)); got != "pulled\n" {
		t.Errorf("it printed %q", got)
	}
}

func TestPrivateRegistryAsksForAPassword(t *testing.T) {
	settings := startRegistry(t)
	image := push(t, settings["PRIVATE_REGISTRY"]+"/team/secret:1", "secret")
	ns := namespace(t, nil)
	create(t, ns, pulled("without", image))
	eventually(t, time.Minute, func() error {
		statuses := get(t, ns, "without").Status.ContainerStatuses
		if len(statuses) == 0 || statuses[0].State.Waiting == nil || !strings.Contains(statuses[0].State.Waiting.Message, "no basic auth credentials") {
			return fmt.Errorf("statuses are %+v", statuses)
		}
		return nil
	})
	login, err := os.ReadFile(filepath.Join(settings["DOCKER_CONFIG"], "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "login"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: login}}
	if _, err := cluster.client.CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := succeed(t, ns, pulled("with", image, "login")); got != "secret\n" {
		t.Errorf("it printed %q", got)
	}
}

// registryAnswer is the status of a GET without password, by a client that trusts the
// file.
func registryAnswer(t *testing.T, authorities, address string) (int, error) {
	t.Helper()
	content, err := os.ReadFile(authorities)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(content)
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	response, err := client.Get("https://" + address)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func TestRegistryIsSecured(t *testing.T) {
	settings := startRegistry(t)
	for name, want := range map[string]int{"REGISTRY": http.StatusOK, "PRIVATE_REGISTRY": http.StatusUnauthorized} {
		if got, err := registryAnswer(t, settings["REGISTRY_CA"], settings[name]+"/v2/"); err != nil || got != want {
			t.Errorf("%s answers %d (%v), want %d", name, got, err, want)
		}
		other := filepath.Join(cluster.layout(t).PKI(), "etcd-ca.crt")
		if got, err := registryAnswer(t, other, settings[name]+"/v2/"); err == nil {
			t.Errorf("%s answers %d to a client that does not know its CA", name, got)
		}
	}
	for _, file := range []string{"password", "htpasswd", "docker/config.json"} {
		info, err := os.Stat(filepath.Join(cluster.layout(t).Registry(), file))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info, err)
		}
	}
}

func TestRegistryDownKeepsImages(t *testing.T) {
	settings := startRegistry(t)
	push(t, settings["REGISTRY"]+"/team/kept:1", "kept")
	cluster.must(t, "registry", "down")
	if output, err := cluster.run(t.Context(), "registry", "env"); err == nil || !strings.Contains(output, "start it with `registry up`") {
		t.Errorf("env of a stopped registry: %v\n%s", err, output)
	}
	if _, err := registryAnswer(t, settings["REGISTRY_CA"], settings["REGISTRY"]+"/v2/"); err == nil {
		t.Error("the registry still answers")
	}
	if output := cluster.must(t, "status"); strings.Contains(output, "registry") {
		t.Errorf("status of a cluster without registry:\n%s", output)
	}
	startRegistry(t)
	if got, err := registryAnswer(t, settings["REGISTRY_CA"], settings["REGISTRY"]+"/v2/team/kept/manifests/1"); err != nil || got != http.StatusOK {
		t.Errorf("the image that was pushed before: %d (%v)", got, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/surface"
)

// theServer is the installed server, as programs on another machine reach it. authority
// is the file with the CA of its certificate.
type theServer struct{ address, authority string }

// authorityFile is the CA that the operator publishes, in a file of the test's own.
func authorityFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, []byte(kubectl(t, `get configmap trireme-ca --namespace trireme-system -o jsonpath='{.data.ca\.crt}'`)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// trusting is how a client verifies a server with the CA of a file alone.
func trusting(t *testing.T, authority string) *tls.Config {
	t.Helper()
	content, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(content) {
		t.Fatalf("the operator publishes no CA: %q", content)
	}
	return &tls.Config{RootCAs: roots}
}

// dial is a connection of gRPC.
func (server *theServer) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	return surface.Dial(t, server.address, trusting(t, server.authority))
}

// reachServer makes a way to the server's Service from this machine.
func reachServer(t *testing.T) *theServer {
	t.Helper()
	// It chooses a free port itself, and says which.
	forward, said := exec.Command(clusterTool(), "kubectl", "port-forward", "--namespace", "trireme-system", "service/trireme-server", ":443"), &printed{}
	forward.Dir, forward.Stdout, forward.Stderr = repository, said, said
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = forward.Process.Kill(); _ = forward.Wait() })
	said.waitFor(t, " -> ")
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+) -> `).FindStringSubmatch(said.String())
	if port == nil {
		t.Fatalf("kubectl port-forward says %q", said)
	}
	server := &theServer{address: "localhost:" + port[1], authority: authorityFile(t)}
	hostTool(t, "curl", "curl")
	eventually.Succeeds(t, "the server answers", func() error {
		if output, err := shell("curl --silent --show-error --fail --cacert " + server.authority + " https://" + server.address + "/readyz"); err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	return server
}

// apt is for one test at a time.
var apt sync.Mutex

// hostTool installs what a machine without it needs.
func hostTool(t *testing.T, program, debianPackage string) {
	t.Helper()
	apt.Lock()
	defer apt.Unlock()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if output, err := shell("tools/apt-install " + debianPackage); err != nil {
		t.Fatalf("install %s: %v\n%s", debianPackage, err, output)
	}
}

// user is somebody with the rights of an editor in one namespace.
type user struct {
	name, namespace, token string
}

// newUser makes a namespace, and somebody who may work in it and nowhere else.
func newUser(t *testing.T) user {
	t.Helper()
	_, namespace := newNamespace(t)
	return newUserOf(t, namespace)
}

// newUserOf makes somebody who may work in a namespace and nowhere else.
func newUserOf(t *testing.T, namespace string) user {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scientist"}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "scientist"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}},
	}
	for _, object := range []client.Object{account, binding, runtimeFor(namespace, "OpenMPI")} {
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	token := strings.TrimSpace(kubectl(t, "create token scientist --namespace "+namespace))
	made := user{name: fmt.Sprintf("system:serviceaccount:%s:scientist", namespace), namespace: namespace, token: token}
	// The server remembers for a while who may not do what.
	eventually.Succeeds(t, made.name+" has rights", func() error {
		output, err := shell("bin/cluster kubectl auth can-i create mpijobs --as " + made.name + " --namespace " + namespace)
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	return made
}

// curl asks the server, and returns code and body.
func (server *theServer) curl(t *testing.T, by user, method, path string, body []byte, more ...string) (code int, answer string) {
	t.Helper()
	arguments := []string{"--silent", "--show-error", "--cacert", server.authority, "--request", method, "--write-out", "\n%{http_code}", "--max-time", "90", "--header", "Authorization: Bearer " + by.token}
	if body != nil {
		arguments = append(arguments, "--header", "Content-Type: application/yaml", "--data-binary", "@-")
	}
	command := exec.Command("curl", append(append(arguments, more...), "https://"+server.address+path)...)
	command.Stdin = bytes.NewReader(body)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("curl %s %s: %v\n%s", method, path, err, output)
	}
	text := string(output)
	last := strings.LastIndex(text, "\n")
	if _, err := fmt.Sscan(text[last+1:], &code); err != nil {
		t.Fatalf("curl %s %s: no code in %q", method, path, text)
	}
	return code, text[:last]
}

// wants asks the server, and fails the test if it answers with another code or without
// these words.
func (server *theServer) wants(t *testing.T, by user, method, path string, body []byte, code int, words ...string) string {
	t.Helper()
	found, answer := server.curl(t, by, method, path, body)
	if found != code {
		t.Errorf("%s %s: %d, want %d\n%.2000s", method, path, found, code, answer)
	}
	for _, word := range words {
		if !strings.Contains(answer, word) {
			t.Errorf("%s %s does not say %q:\n%.2000s", method, path, word, answer)
		}
	}
	return answer
}

// manifest is a job as a user writes it, of two workers that run a Python program.
func manifest(t *testing.T, kind, name, program string) []byte {
	t.Helper()
	object, version := both(2, program)[kind], "kubeflow.org/v2beta1"
	if trainJob, is := object.(*v2alpha1.TrainJob); is {
		trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "runtime"}
		version = "kubeflow.org/v2alpha1"
	}
	object.SetName(name)
	content, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(content, &fields); err != nil {
		t.Fatal(err)
	}
	fields["apiVersion"], fields["kind"] = version, kind
	delete(fields, "status")
	if content, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return content
}

var plurals = map[string]string{"TrainJob": "trainjobs", "MPIJob": "mpijobs"}

// Every endpoint, asked by curl, over the life of a job of each kind that runs and of
// one that fails.
func TestServerREST(t *testing.T) {
	t.Parallel()
	server, ada := reachServer(t), newUser(t)
	for kind, plural := range plurals {
		t.Run(kind, func(t *testing.T) {
			jobs := fmt.Sprintf("/api/v1/namespaces/%s/%s", ada.namespace, plural)
			made := func(name, program string) []byte { return manifest(t, kind, name, program) }
			long := made("long", "import os, time\nfrom mpi4py import MPI\nprint('password=hunter2 rank', MPI.COMM_WORLD.rank, flush=True)\ntime.sleep(300)")
			server.wants(t, ada, "POST", jobs+"?dryRun=All", long, 201, `"long"`)
			server.wants(t, ada, "GET", jobs+"/long", nil, 404, "not found")
			server.wants(t, ada, "POST", fmt.Sprintf("/api/v1/namespaces/%s/preflight", ada.namespace), long, 200, `"checks"`)
			server.wants(t, ada, "POST", jobs, long, 201, `"uid"`, `"long"`)
			server.wants(t, ada, "POST", jobs, long, 409, "already exists")
			server.wants(t, ada, "GET", jobs+"/long", nil, 200, `"kind":"`+kind+`"`, `"uid"`)
			server.until(t, ada, jobs+"/long/status", `"phase":"Running"`)
			server.until(t, ada, jobs+"/long/logs", "rank")
			if logs := server.wants(t, ada, "GET", jobs+"/long/logs/launcher", nil, 200, "rank"); strings.Contains(logs, "hunter2") {
				t.Errorf("a password is in the logs:\n%s", logs)
			}
			server.wants(t, ada, "GET", jobs+"/long/logs?podType=worker&tailLines=5", nil, 200, `"logs"`)
			server.wants(t, ada, "GET", jobs+"/long/logs/worker/0", nil, 200)
			server.wants(t, ada, "GET", jobs+"/long/logs/worker/-1", nil, 400, "invalid worker index: -1")
			server.wants(t, ada, "GET", jobs+"?limit=1&sort=-creationTime&status=Running", nil, 200, `"long"`)
			server.until(t, ada, jobs+"/long/events", `"JobSubmitted"`)
			server.wants(t, ada, "GET", jobs+"/long/metrics", nil, 200, `"source"`)
			server.wants(t, ada, "GET", jobs+"/long/diagnose", nil, 200, `"state":"Running"`)
			server.wants(t, ada, "POST", jobs+"/long/restart", nil, 400, kind+" cannot be restarted (must be in Failed state)")
			server.wants(t, ada, "POST", jobs+"/long/suspend", nil, 200, `"suspend":true`)
			server.until(t, ada, jobs+"?status=Suspended", `"long"`)
			server.wants(t, ada, "POST", jobs+"/long/resume", nil, 200, `"suspend":false`)
			server.wants(t, ada, "DELETE", jobs+"/long?dryRun=All", nil, 204)
			server.wants(t, ada, "DELETE", jobs+"/long", nil, 204)
			server.wants(t, ada, "DELETE", jobs+"/long", nil, 404)

			server.wants(t, ada, "POST", jobs, made("broken", "raise SystemExit(3)"), 201)
			server.until(t, ada, jobs+"/broken/status", `"phase":"Failed"`)
			again := server.wants(t, ada, "POST", jobs+"/broken/restart", nil, 201, `"broken-retry-`)
			eventually.Succeeds(t, "the failed job is gone", func() error {
				if code, answer := server.curl(t, ada, "GET", jobs+"/broken", nil); code != 404 {
					return fmt.Errorf("it says %d: %.1000s", code, answer)
				}
				return nil
			})
			var restarted metav1.PartialObjectMetadata
			if err := json.Unmarshal([]byte(again), &restarted); err != nil {
				t.Fatal(err)
			}
			server.wants(t, ada, "DELETE", jobs+"/"+restarted.Name, nil, 204)
		})
	}
	server.wants(t, ada, "GET", "/api/v1/trainjobs?namespace="+ada.namespace, nil, 200, `"items"`)
	server.wants(t, ada, "GET", "/api/v1/trainjobs/gone?namespace="+ada.namespace, nil, 404)
	server.wants(t, ada, "GET", "/api/v1/trainjobs/gone/logs", nil, 400, "namespace: is required")
	server.wants(t, ada, "GET", "/api/v1/clustertrainingruntimes", nil, 200, "mpi-openmpi-cpu", `"mpiImplementation":"OpenMPI"`)
	server.wants(t, ada, "GET", "/api/v1/clustertrainingruntimes/mpi-openmpi-cpu", nil, 200, `"ClusterTrainingRuntime"`)
	server.wants(t, ada, "GET", fmt.Sprintf("/api/v1/namespaces/%s/clustertrainingruntimes?framework=MPI", ada.namespace), nil, 200, "mpi-openmpi-cpu", `"TrainingRuntime"`)
	server.wants(t, ada, "GET", fmt.Sprintf("/api/v1/namespaces/%s/trainingruntimes/runtime", ada.namespace), nil, 200, `"TrainingRuntime"`)
	server.wants(t, ada, "GET", fmt.Sprintf("/api/v1/namespaces/%s/quota", ada.namespace), nil, 200, `"quotas"`)
	server.wants(t, ada, "GET", fmt.Sprintf("/api/v1/namespaces/%s/preflight", ada.namespace), nil, 200, `"checks"`)
}

// until asks until the answer has a word in it.
func (server *theServer) until(t *testing.T, by user, path, word string) {
	t.Helper()
	eventually.Succeeds(t, path+" says "+word, func() error {
		if code, answer := server.curl(t, by, "GET", path, nil); code != 200 || !strings.Contains(answer, word) {
			return fmt.Errorf("it says %d: %.1000s", code, answer)
		}
		return nil
	})
}

// Nobody sees, changes or hears of what is another's, and each refused call that was
// to change something is in the audit, once.
func TestServerKeepsUsersApart(t *testing.T) {
	t.Parallel()
	server, ada, bob := reachServer(t), newUser(t), newUser(t)
	since := time.Now().Add(-time.Second)
	jobs := fmt.Sprintf("/api/v1/namespaces/%s/mpijobs", ada.namespace)
	server.wants(t, ada, "POST", jobs, manifest(t, "MPIJob", "secret", waiting), 201)
	stranger := user{token: "none-of-this-cluster"}
	changes := 1
	for _, path := range allPaths(ada.namespace, "secret") {
		method, path, _ := strings.Cut(path, " ")
		var body []byte
		switch {
		case method == "POST" && strings.Contains(path, "trainjobs"):
			body = manifest(t, "TrainJob", "intruder", waiting)
		case method == "POST":
			body = manifest(t, "MPIJob", "intruder", waiting)
		}
		isForAll := strings.HasSuffix(path, "clustertrainingruntimes") && !strings.Contains(path, "/namespaces/")
		if !isForAll {
			answer := server.wants(t, bob, method, path, body, 403, bob.name)
			if strings.Contains(answer, `"uid"`) {
				t.Errorf("%s %s tells bob of ada's job:\n%s", method, path, answer)
			}
		}
		server.wants(t, stranger, method, path, body, 401, "the token is invalid")
		if method != "GET" && !strings.HasSuffix(path, "/preflight") {
			changes += 2
		}
	}
	for _, plural := range []string{"mpijobs", "trainjobs"} {
		if list := server.wants(t, bob, "GET", "/api/v1/"+plural, nil, 200, `"items"`); strings.Contains(list, ada.namespace) {
			t.Errorf("bob's list of all namespaces has ada's jobs:\n%s", list)
		}
	}
	eventually.Succeeds(t, "the audit has every call once", func() error {
		found := server.audit(t, since, ada.namespace)
		if len(found) != changes {
			return fmt.Errorf("it has %d lines, want %d:\n%s", len(found), changes, strings.Join(found, "\n"))
		}
		return nil
	})
	server.wants(t, ada, "DELETE", jobs+"/secret", nil, 204)
}

// allPaths are all that can be asked about a job of a namespace.
func allPaths(namespace, name string) (paths []string) {
	base := "/api/v1/namespaces/" + namespace
	for _, plural := range []string{"mpijobs", "trainjobs"} {
		one := fmt.Sprintf("%s/%s/%s", base, plural, name)
		paths = append(paths, "POST "+base+"/"+plural, "GET "+base+"/"+plural, "DELETE "+one, "GET "+one, "GET /api/v1/watch/namespaces/"+namespace+"/"+plural)
		for _, part := range []string{"status", "logs", "logs?follow=true", "logs/launcher", "logs/worker/0", "events", "metrics", "diagnose"} {
			paths = append(paths, "GET "+one+"/"+part)
		}
		for _, action := range []string{"restart", "suspend", "resume"} {
			paths = append(paths, "POST "+one+"/"+action)
		}
		paths = append(paths, fmt.Sprintf("GET /api/v1/%s?namespace=%s", plural, namespace), fmt.Sprintf("GET /api/v1/%s/%s?namespace=%s", plural, name, namespace))
	}
	return append(paths, "GET "+base+"/quota", "GET "+base+"/trainingruntimes", "GET "+base+"/trainingruntimes/runtime", "GET "+base+"/clustertrainingruntimes")
}

// audit are the lines about a namespace that the server's replicas have written.
func (server *theServer) audit(t *testing.T, since time.Time, namespace string) (lines []string) {
	t.Helper()
	output := kubectl(t, "logs deployment/trireme-server --namespace trireme-system --all-pods --since-time "+since.UTC().Format(time.RFC3339))
	for line := range strings.Lines(output) {
		if strings.Contains(line, `"msg":"audit"`) && strings.Contains(line, fmt.Sprintf(`"namespace":%q`, namespace)) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// A property-based tester that we did not write finds neither a server error nor an
// answer that the document does not have.
func TestServerAsItsDocumentSays(t *testing.T) {
	// Not beside others: a cluster that is too busy to answer is a server error, too.
	server, ada := reachServer(t), newUser(t)
	tools := pythonTools(t, "schemathesis==4.32.5", "openapi-spec-validator==0.9.0")
	document := filepath.Join(t.TempDir(), "openapi.json")
	_, content := server.curl(t, ada, "GET", "/openapi.json", nil)
	if err := os.WriteFile(document, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	python := exec.Command("python3", "-m", "openapi_spec_validator", document)
	python.Env = append(os.Environ(), "PYTHONPATH="+tools)
	if output, err := python.CombinedOutput(); err != nil {
		t.Errorf("the document is not valid: %v\n%s", err, output)
	}
	settings := filepath.Join(t.TempDir(), "schemathesis.toml")
	if err := os.WriteFile(settings, fmt.Appendf(nil, schemathesisSettings, ada.namespace), 0o600); err != nil {
		t.Fatal(err)
	}
	// Without a history, its paths answer with 501, which counts as a server error.
	tester := exec.Command("python3", "-m", "schemathesis.cli", "--config-file", settings, "run", document, "--url", "https://"+server.address, "--tls-verify", server.authority,
		"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,negative_data_rejection", "--max-examples", "15",
		"--exclude-path-regex", "watch|/history/", "--header", "Authorization: Bearer "+ada.token, "--request-timeout", "60", "--seed", "1")
	tester.Env, tester.Dir = append(os.Environ(), "PYTHONPATH="+tools), t.TempDir()
	output, err := tester.CombinedOutput()
	if err != nil {
		t.Errorf("schemathesis: %v\n%s", err, output)
	}
	t.Logf("%s", output[max(0, len(output)-900):])
}

// schemathesisSettings: requests about other namespaces would only be refused, and bodies
// have so many fields that one of each kind would take minutes.
const schemathesisSettings = `
[parameters]
namespace = %q
[phases]
examples.enabled = false
stateful.enabled = false
[[operations]]
include-method = "POST"
phases.coverage.enabled = false
[[operations]]
include-method = "PUT"
phases.coverage.enabled = false
`

// pythonTools are programs of PyPI in a folder of their own, kept between runs.
func pythonTools(t *testing.T, packages ...string) string {
	t.Helper()
	hostTool(t, "python3", "python3")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(cache, "trireme", "python", strings.NewReplacer("==", "-").Replace(strings.Join(packages, "_")))
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	if _, err := shell("python3 -m pip --version"); err != nil {
		hostTool(t, "pip3", "python3-pip")
	}
	half := folder + ".half"
	if output, err := shell(fmt.Sprintf("rm -rf %[1]q && python3 -m pip install --quiet --target %[1]q %[2]s && mv %[1]q %[3]q", half, strings.Join(packages, " "), folder)); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return folder
}

// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const goodJob = `apiVersion: kubeflow.org/v2alpha1
kind: TrainJob
metadata: {name: good}
spec:
  runtimeRef: {kind: ClusterTrainingRuntime, name: mpi-openmpi-cpu}
  trainer: {image: "quay.io/team/train:7", numNodes: 4}
`

// errorForm is how every error looks.
var errorForm = regexp.MustCompile(`(?s)^Error: \S.*\nReason: \w+\n(Details:.*\n)?(Suggestions:\n  1\. .*\n)?Documentation: https://\S+\n$`)

func (outcome outcome) wantError(t *testing.T, code int, reason string) {
	t.Helper()
	if outcome.code != code {
		t.Errorf("exit code %d, want %d", outcome.code, code)
	}
	if !errorForm.MatchString(outcome.stderr) {
		t.Errorf("this is not the form of an error:\n%s", outcome.stderr)
	}
	if !strings.Contains(outcome.stderr, "\nReason: "+reason+"\n") {
		t.Errorf("the reason is not %s:\n%s", reason, outcome.stderr)
	}
	if outcome.stdout != "" {
		t.Errorf("an error belongs to stderr alone; stdout has\n%s", outcome.stdout)
	}
}

func (cluster *cluster) testErrors(t *testing.T) {
	namespace := cluster.namespace(t)
	if err := cluster.client.Create(t.Context(), trainJob(namespace, "taken")); err != nil {
		t.Fatal(err)
	}
	reader := cluster.identity(t, "reader")
	cluster.allow(t, "reader", namespace, "get", "list", "watch")
	nobody := cluster.identity(t, "nobody")
	stranger := write(t, "kubeconfig", strings.ReplaceAll(readFile(t, nobody), "client-certificate-data", "client-certificate-data-not"))
	getter := cluster.identity(t, "getter")
	cluster.allow(t, "getter", namespace, "get")
	create := []string{"trainjob", "create", "-f", "-"}
	tests := map[string]struct {
		arguments  []string
		stdin      string
		kubeconfig string
		wantCode   int
		wantReason string
	}{
		"not YAML":                     {arguments: create, stdin: "spec: [unclosed", wantCode: 2, wantReason: "InvalidInput"},
		"two documents":                {arguments: create, stdin: goodJob + "---\n" + goodJob, wantCode: 2, wantReason: "InvalidInput"},
		"an unknown field":             {arguments: create, stdin: goodJob + "  nodes: 4\n", wantCode: 2, wantReason: "InvalidInput"},
		"another kind":                 {arguments: create, stdin: "{apiVersion: v1, kind: Pod, metadata: {name: a}}", wantCode: 2, wantReason: "InvalidInput"},
		"a value that is not allowed":  {arguments: create, stdin: strings.Replace(goodJob, "ClusterTrainingRuntime", "Cluster", 1), wantCode: 1, wantReason: "Invalid"},
		"a name that is not allowed":   {arguments: []string{"trainjob", "create", "No_Name", "--runtime", "r", "--image", "i"}, wantCode: 1, wantReason: "Invalid"},
		"a name that is taken":         {arguments: []string{"trainjob", "create", "taken", "--runtime", "r", "--image", "i"}, wantCode: 1, wantReason: "AlreadyExists"},
		"no such file":                 {arguments: []string{"trainjob", "create", "-f", "/nowhere/job.yaml"}, wantCode: 2, wantReason: "InvalidInput"},
		"no namespace of that name":    {arguments: []string{"trainjob", "create", "a", "--runtime", "r", "--image", "i", "-n", "nowhere"}, wantCode: 3, wantReason: "NotFound"},
		"an unknown flag":              {arguments: []string{"trainjob", "create", "--frobnicate"}, wantCode: 2, wantReason: "Usage"},
		"an unknown job, to show":      {arguments: []string{"trainjob", "get", "nope"}, wantCode: 3, wantReason: "NotFound"},
		"an unknown job, to describe":  {arguments: []string{"mpijob", "describe", "nope"}, wantCode: 3, wantReason: "NotFound"},
		"an unknown job, to delete":    {arguments: []string{"mpijob", "delete", "nope"}, wantCode: 3, wantReason: "NotFound"},
		"an unknown job, to wait for":  {arguments: []string{"mpijob", "wait", "nope"}, wantCode: 3, wantReason: "NotFound"},
		"may not create":               {arguments: create, stdin: goodJob, kubeconfig: reader, wantCode: 4, wantReason: "Forbidden"},
		"may not watch":                {arguments: []string{"trainjob", "wait", "taken"}, kubeconfig: getter, wantCode: 4, wantReason: "Forbidden"},
		"a configuration that is none": {arguments: create, stdin: goodJob, kubeconfig: write(t, "kubeconfig", "clusters: ["), wantCode: 1, wantReason: "NoCluster"},
		"an answer that takes long":    {arguments: []string{"trainjob", "get", "--request-timeout", "1us"}, wantCode: 7, wantReason: "Timeout"},
		"may not delete":               {arguments: []string{"trainjob", "delete", "taken"}, kubeconfig: reader, wantCode: 4, wantReason: "Forbidden"},
		"may not suspend":              {arguments: []string{"trainjob", "suspend", "taken"}, kubeconfig: reader, wantCode: 4, wantReason: "Forbidden"},
		"may not list":                 {arguments: []string{"training", "list"}, kubeconfig: nobody, wantCode: 4, wantReason: "Forbidden"},
		"may not, as somebody else":    {arguments: []string{"trainjob", "get", "--as", "nobody"}, wantCode: 4, wantReason: "Forbidden"},
		"not known to the cluster":     {arguments: []string{"trainjob", "get"}, kubeconfig: stranger, wantCode: 4, wantReason: "Forbidden"},
		"no cluster at the address":    {arguments: []string{"trainjob", "get", "--server", "https://" + closedPort(t)}, wantCode: 1, wantReason: "Unreachable"},
		"no configuration":             {arguments: []string{"trainjob", "get"}, kubeconfig: filepath.Join(t.TempDir(), "none"), wantCode: 1, wantReason: "NoCluster"},
		"no context of that name":      {arguments: []string{"trainjob", "get", "--context", "nope"}, wantCode: 1, wantReason: "NoCluster"},
		"waited too long":              {arguments: []string{"trainjob", "wait", "taken", "--timeout", "300ms"}, wantCode: 7, wantReason: "Timeout"},
		"a continued, but bad command": {arguments: []string{"trainjob", "explode"}, wantCode: 2, wantReason: "Usage"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			kubeconfig := tc.kubeconfig
			if kubeconfig == "" {
				kubeconfig = cluster.kubeconfig
			}
			arguments := tc.arguments
			if !strings.Contains(strings.Join(arguments, " "), "-n nowhere") {
				arguments = append(arguments[:len(arguments):len(arguments)], "-n", namespace)
			}
			run(t, kubeconfig, tc.stdin, arguments...).wantError(t, tc.wantCode, tc.wantReason)
			if got := cluster.jobs(t, namespace); got != 1 {
				t.Errorf("%d jobs, want 1: the one that was there before", got)
			}
		})
	}
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// A cluster without the job APIs says so, and not that a job was not found.
func TestClusterWithoutTheAPIs(t *testing.T) {
	cluster := startCluster(t, t.TempDir())
	for _, line := range []string{"training list", "trainjob get a", "mpijob describe a", "trainjob create a --runtime r --image i"} {
		t.Run(line, func(t *testing.T) {
			run(t, cluster.kubeconfig, "", strings.Fields(line)...).wantError(t, 1, "APINotServed")
		})
	}
}

// A field that an older cluster does not know would be lost without a word.
func TestOlderCluster(t *testing.T) {
	older := t.TempDir()
	for _, file := range []string{"kubeflow.org_trainjobs.yaml", "kubeflow.org_mpijobs.yaml"} {
		content := readFile(t, filepath.Join(repository, "charts/trireme/crds", file))
		content = strings.ReplaceAll(content, "requireAllHosts:", "somethingElse:")
		if err := os.WriteFile(filepath.Join(older, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cluster := startCluster(t, older)
	run(t, cluster.kubeconfig, goodJob+"  requireAllHosts: true\n", "trainjob", "create", "-f", "-").wantError(t, 1, "ServerTooOld")
	if got := cluster.jobs(t, ""); got != 0 {
		t.Errorf("%d jobs, want none", got)
	}
	// What it does know, it takes.
	if got := run(t, cluster.kubeconfig, goodJob, "trainjob", "create", "-f", "-"); got.code != 0 {
		t.Errorf("exit code %d\n%s", got.code, got.stderr)
	}
}

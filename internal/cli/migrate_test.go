// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/migrate"
)

// Jobs from the golden tests of the package migrate.
const (
	sshdJob       = "../engine/migrate/testdata/sshd.yaml"
	everythingJob = "../engine/migrate/testdata/everything.yaml"
	personJob     = "../engine/migrate/testdata/person.yaml"
)

// readyJob sets only what a runtime of the cluster sets too.
const readyJob = `apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: ready, namespace: team-a}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - {name: main, image: i, command: [mpirun, -np, "2", train], resources: {limits: {cpu: 1, memory: 1Gi}}}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {name: main, image: i, resources: {limits: {cpu: 1, memory: 1Gi}}}
`

func mpiJobOf(t *testing.T, text string) *v2beta1.MPIJob {
	t.Helper()
	var mpiJob v2beta1.MPIJob
	if err := yaml.Unmarshal([]byte(text), &mpiJob); err != nil {
		t.Fatal(err)
	}
	if mpiJob.Namespace == "" {
		mpiJob.Namespace = "default"
	}
	return &mpiJob
}

func fileText(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// plainRuntime sets only the MPI implementation.
func plainRuntime() *v2alpha1.ClusterTrainingRuntime {
	runtime := &v2alpha1.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	runtime.Spec.MLPolicy.MPIImplementation = v2alpha1.MPIImplementationOpenMPI
	for _, name := range []string{v2alpha1.ReplicatedJobLauncher, v2alpha1.ReplicatedJobWorker} {
		replicated := v2alpha1.ReplicatedJob{Name: name}
		replicated.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
		runtime.Spec.Template.Spec.ReplicatedJobs = append(runtime.Spec.Template.Spec.ReplicatedJobs, replicated)
	}
	return runtime
}

func TestMigrate(t *testing.T) {
	jobs := []client.Object{plainRuntime(), mpiJobOf(t, readyJob), mpiJobOf(t, fileText(t, sshdJob)), mpiJobOf(t, fileText(t, everythingJob)), mpiJobOf(t, fileText(t, personJob))}
	odd := mpiJobOf(t, "metadata: {name: odd, namespace: team-a}\nspec: {mpiReplicaSpecs: {}}\n")
	configMap := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n---\n"
	cases := map[string]struct {
		session
		line string
	}{
		"file":                           {session{terminal: noTerminal}, "migrate " + sshdJob},
		"narrow":                         {session{terminal: narrow}, "migrate " + everythingJob},
		"wide":                           {session{terminal: wide}, "migrate " + everythingJob},
		"coloured":                       {session{terminal: colourful}, "migrate " + personJob},
		"json":                           {session{terminal: noTerminal}, "migrate -o json --report-format json " + sshdJob},
		"standard input":                 {session{terminal: noTerminal, stdin: configMap + readyJob}, "migrate -"},
		"check is well":                  {session{terminal: noTerminal}, "migrate --check " + everythingJob},
		"check needs a person":           {session{terminal: narrow}, "migrate --check " + personJob},
		"scheduler":                      {session{terminal: noTerminal, stdin: readyJob}, "migrate --scheduler volcano -"},
		"from cluster":                   {session{terminal: noTerminal, objects: jobs}, "migrate --from-cluster -n team-a"},
		"from cluster by name":           {session{terminal: noTerminal, objects: jobs}, "migrate --from-cluster -n team-a -o json ready"},
		"from cluster not found":         {session{terminal: noTerminal, objects: jobs}, "migrate --from-cluster -n team-a nobody"},
		"from cluster impossible":        {session{terminal: noTerminal, objects: []client.Object{odd}}, "migrate --from-cluster -n team-a odd"},
		"from cluster with names of all": {session{terminal: noTerminal}, "migrate --from-cluster -A ready"},
		"version 1":                      {session{terminal: noTerminal, stdin: "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: old}\n"}, "migrate -"},
		"version 1alpha1":                {session{terminal: noTerminal, stdin: "apiVersion: kubeflow.org/v1alpha1\nkind: MPIJob\nmetadata: {name: old}\n"}, "migrate -"},
		"other kinds":                    {session{terminal: noTerminal, stdin: configMap + "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: other}\n"}, "migrate -"},
		"not yaml":                       {session{terminal: noTerminal, stdin: "a: b: c"}, "migrate -"},
		"not an object":                  {session{terminal: noTerminal, stdin: "a: b"}, "migrate -"},
		"no file":                        {session{terminal: noTerminal}, "migrate no/such/file.yaml"},
		"nothing named":                  {session{terminal: noTerminal}, "migrate"},
		"unknown output":                 {session{terminal: noTerminal}, "migrate -o table -"},
		"unknown scheduler":              {session{terminal: noTerminal}, "migrate --scheduler cron -"},
		"all namespaces of a file":       {session{terminal: noTerminal}, "migrate -A -"},
		"no place for the report":        {session{terminal: noTerminal, stdin: readyJob}, "migrate --report no/such/folder/report.txt -"},
		"status":                         {session{terminal: noTerminal, objects: jobs}, "migrate status -n team-a"},
		"status narrow":                  {session{terminal: narrow, objects: append(jobs, odd)}, "migrate status -A"},
		"status wide":                    {session{terminal: wide, objects: append(jobs, odd)}, "migrate status -A -o wide"},
		"status coloured":                {session{terminal: colourful, objects: jobs}, "migrate status -A"},
		"status json":                    {session{terminal: noTerminal, objects: jobs}, "migrate status -A -o json"},
		"status yaml":                    {session{terminal: noTerminal, objects: jobs}, "migrate status -n team-a -o yaml"},
		"status of nothing":              {session{terminal: noTerminal}, "migrate status"},
		"status unknown output":          {session{terminal: noTerminal}, "migrate status -o name"},
		"status unknown scheduler":       {session{terminal: noTerminal}, "migrate status --scheduler cron"},
	}
	checkGolden(t, "migrate", cases)
}

// --report writes the report to a file, and only there.
func TestMigrateWritesTheReport(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		file := filepath.Join(t.TempDir(), "report")
		shown := session{terminal: narrow, stdin: readyJob}.run(t, "migrate - --report-format "+format+" --report "+file)
		if !strings.Contains(shown, "--- stderr\n--- exit code 0") {
			t.Errorf("something is on standard error:\n%s", shown)
		}
		content := fileText(t, file)
		if format == "text" {
			if !strings.Contains(content, "MPIJob team-a/ready becomes TrainJob ready with TrainingRuntime ready") {
				t.Errorf("the report is\n%s", content)
			}
			continue
		}
		var read struct{ Jobs []migrate.Report }
		if err := json.Unmarshal([]byte(content), &read); err != nil || len(read.Jobs) != 1 || len(read.Jobs[0].Entries) == 0 {
			t.Errorf("%v: the report is\n%s", err, content)
		}
	}
}

// The printed objects are valid input for kubectl and odh.
func TestMigrateIsDoneOnce(t *testing.T) {
	for _, form := range []string{"yaml", "json"} {
		shown := session{terminal: noTerminal}.run(t, "migrate -o "+form+" "+everythingJob)
		_, shown, _ = strings.Cut(shown, "\n")
		printed, _, _ := strings.Cut(shown, "--- stderr\n")
		again := session{terminal: noTerminal, stdin: printed}.run(t, "migrate -")
		if !strings.Contains(again, "TrainJob resnet of kubeflow.org/v2alpha1 is not an MPIJob") || !strings.Contains(again, "exit code 2") {
			t.Errorf("%s: %s", form, again)
		}
	}
}

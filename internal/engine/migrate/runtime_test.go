// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// A runtime of the namespace that says the same is taken, and one that says
// something else keeps its name.
func TestRuntimesOfANamespace(t *testing.T) {
	existing := &Existing{}
	first := convert(t, jobWith(ranks, needs), Options{Existing: existing})
	existing.Add(first.Runtime)
	for name, test := range map[string]struct {
		job, want string
		made      bool
	}{
		"the same":                   {strings.Replace(jobWith(ranks, needs), "small", "other", 1), "TrainingRuntime small", false},
		"the same name":              {jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "TrainingRuntime small-2", true},
		"another one":                {strings.Replace(jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "small", "other", 1), "TrainingRuntime other", true},
		"the same name, elsewhere":   {strings.Replace(jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "{name: small}", "{name: small, namespace: b}", 1), "TrainingRuntime small", true},
		"the same, elsewhere":        {strings.Replace(jobWith(ranks, needs), "{name: small}", "{name: small, namespace: b}", 1), "TrainingRuntime small", true},
		"the same, by a first name":  {strings.Replace(jobWith(ranks, needs), "{name: small}", "{generateName: small-}", 1), "TrainingRuntime small", false},
		"another, by its first name": {strings.Replace(jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "{name: small}", "{generateName: small-}", 1), "TrainingRuntime small-2", true},
	} {
		t.Run(name, func(t *testing.T) {
			result := convert(t, test.job, Options{Existing: existing})
			if result.Report.Runtime != test.want || (result.Runtime != nil) != test.made || result.Runtime != nil && "TrainingRuntime "+result.Runtime.Name != test.want {
				t.Errorf("the job names %s, want %s", result.Report.Runtime, test.want)
			}
			for _, entry := range result.Report.Of(Moved) {
				if strings.Contains(entry.Why, "small has the same") == test.made {
					t.Errorf("the report says %+v", entry)
				}
			}
		})
	}
}

// The runtimes that are installed set what most MPIJobs do not; one that says the
// same needs no runtime of its own.
func TestAnInstalledRuntimeIsTaken(t *testing.T) {
	var intel v2alpha1.ClusterTrainingRuntime
	data, err := os.ReadFile("../../../charts/trireme/files/runtimes/mpi-intel-cpu.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &intel); err != nil {
		t.Fatal(err)
	}
	options := Options{Runtimes: []v2alpha1.ClusterTrainingRuntime{intel}}
	same := jobWith("job mpiImplementation: Intel", "job slotsPerWorker: 2", "launcher.main env: [{name: HOME, value: /tmp}, {name: I_MPI_PIN, value: '0'}]",
		"launcher.main command: [mpirun, -np, '4', train]", "launcher.main resources: {limits: {cpu: 1, memory: 1Gi}}", needs,
		"worker.main env: [{name: HOME, value: /tmp}, {name: I_MPI_PIN, value: '0'}, {name: OMP_NUM_THREADS, value: '4'}, {name: MKL_NUM_THREADS, value: '4'}]")
	for text, want := range map[string]string{
		same: "ClusterTrainingRuntime mpi-intel-cpu",
		strings.Replace(same, "OMP_NUM_THREADS, value: '4'", "OMP_NUM_THREADS, value: '8'", 1): "TrainingRuntime small",
		// Its four slots are not those of a job that does not say it.
		strings.NewReplacer("slotsPerWorker: 2", "runLauncherAsWorker: false", "-np, '4'", "-np, '2'").Replace(same): "ClusterTrainingRuntime mpi-intel-cpu",
		strings.Replace(same, "mpiImplementation: Intel", "mpiImplementation: MPICH", 1):                             "TrainingRuntime small",
		strings.Replace(same, "-np, '4', train", "-ppn, '2', train", 1):                                              "ClusterTrainingRuntime mpi-intel-cpu",
		strings.Replace(same, "[mpirun, -np, '4', train]", "[sh, -c, train]", 1):                                     "TrainingRuntime small",
	} {
		result := convert(t, text, options)
		if got := result.Report.Runtime; got != want || (result.Runtime == nil) != strings.HasPrefix(want, "Cluster") {
			t.Errorf("the job names %s, want %s:\n%s", got, want, text)
		}
		if slots := result.TrainJob.Spec.Trainer.SlotsPerWorker; slots == nil || *slots != 1 && strings.Contains(text, "runLauncherAsWorker") {
			t.Errorf("the slots are the runtime's:\n%s", text)
		}
		if objects, err := result.Objects(); err != nil || result.Runtime == nil && len(objects) != 1 {
			t.Errorf("%d objects are made, %v", len(objects), err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// planned is a job, and how its pods get the agent.
type planned struct {
	job    func() *job.Job
	method Method
}

func ofMPIJob(options ...option) func() *job.Job {
	return func() *job.Job { return mpiJob(options...) }
}

// goldens are jobs whose pod templates are stored.
var goldens = map[string]planned{
	"an MPIJob, the agent by image volume":   {job: ofMPIJob(), method: ImageVolume},
	"an MPIJob, the agent by init container": {job: ofMPIJob(), method: InitContainer},
	"a TrainJob, the agent by image volume":  {job: func() *job.Job { return trainJob() }, method: ImageVolume},
	"a TrainJob of Intel MPI, the agent by init container": {job: func() *job.Job {
		return trainJob(func(_ *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.MLPolicy.MPIImplementation = v2alpha1.MPIImplementationIntelMPI
		})
	}, method: InitContainer},
	"a TrainJob without a command": {job: func() *job.Job {
		return trainJob(func(trainJob *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) {
			trainJob.Spec.Trainer.Command, trainJob.Spec.Trainer.Args = nil, nil
			runtime.Template.Spec.ReplicatedJobs[0].Template.Spec.Containers[0].Command = nil
		})
	}, method: InitContainer},
	"Intel MPI": {job: ofMPIJob(implementation(v2beta1.MPIImplementationIntel)), method: ImageVolume},
	"MPICH":     {job: ofMPIJob(implementation(v2beta1.MPIImplementationMPICH)), method: ImageVolume},

	"an sshd of the image, as root":                      {job: ofMPIJob(imageSSH, asRoot), method: ImageVolume},
	"an sshd of the image, as another user":              {job: ofMPIJob(asUser), method: InitContainer},
	"an sshd of the image, a launcher without a command": {job: ofMPIJob(asUser, launcherCommand()), method: ImageVolume},

	"a launcher without a command, by image volume":   {job: ofMPIJob(launcherCommand()), method: ImageVolume},
	"a launcher without a command, by init container": {job: ofMPIJob(launcherCommand()), method: InitContainer},
	// The arguments are for the image's entrypoint.
	"a launcher with args only": {job: ofMPIJob(launcherArgs("--epochs", "3")), method: ImageVolume},

	"a read-only root":                             {job: ofMPIJob(both(readOnlyRoot)), method: ImageVolume},
	"a template with mounts at dev-shm and tmp":    {job: ofMPIJob(both(readOnlyRoot), both(ownScratch)), method: ImageVolume},
	"the user's own variables win":                 {job: ofMPIJob(both(ownVariables)), method: ImageVolume},
	"the user's own readiness probe stays":         {job: ofMPIJob(both(ownProbe)), method: ImageVolume},
	"the user's own init containers stay in order": {job: ofMPIJob(both(ownContainers)), method: InitContainer},
	"the gate is last of the init containers":      {job: ofMPIJob(both(ownContainers), launcherCommand()), method: InitContainer},
	"everything else that a template has stays":    {job: ofMPIJob(both(ownEverything)), method: ImageVolume},
	"a pod without a grace period":                 {job: ofMPIJob(both(noGrace)), method: ImageVolume},
}

func TestGoldens(t *testing.T) {
	names := map[string]bool{}
	for name, tc := range goldens {
		names[goldenFile(name)] = true
		t.Run(name, func(t *testing.T) {
			got := render(t, tc)
			goldenfile.Check(t, goldenFile(name), got)
		})
	}
	goldenfile.NoOthers(t, "testdata/*.golden.yaml", names)
}

func goldenFile(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == ' ' || r == ',' || r == '\'' })
	// Drop the s of "user's".
	words = slices.DeleteFunc(words, func(word string) bool { return word == "s" })
	return filepath.Join("testdata", strings.Join(words, "-")+".golden.yaml")
}

// render is the templates of launcher and workers, as two documents.
func render(t *testing.T, tc planned) []byte {
	t.Helper()
	j := tc.job()
	var documents [][]byte
	for _, pod := range pods(j, tc.method) {
		text, err := yaml.Marshal(pod.got)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, append([]byte("# "+pod.role+"\n"), text...))
	}
	return bytes.Join(documents, []byte("---\n"))
}

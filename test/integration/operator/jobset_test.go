// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

// A cluster without JobSet: MPIJobs run, TrainJobs say what they lack, and start
// by themselves once it is installed.
func TestJobSetIsInstalledLater(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	place := cluster.newPlace(t, nil)
	place.Create(runtime("mpi"))
	job := trainJob("", "train")
	place.createEventually(job)
	place.Until("the job says what it lacks", job, func() error {
		return wantConditions(job, "TrainingComplete", "False JobSetNotInstalled", "Failed", "False NotFailed")
	})
	if progressOf(job).Phase != training.PhasePending {
		t.Errorf("it is %s", progressOf(job).Phase)
	}
	other := mpiJob("other")
	place.Create(other)
	launcher, _ := place.runs(other)
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(other, training.PhaseSucceeded)

	installed := time.Now()
	text, err := os.ReadFile(filepath.Join(deployed.JobSetCRDs(t), "jobset.x-k8s.io_jobsets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kind := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, kind); err != nil {
		t.Fatal(err)
	}
	cluster.create(t, kind)
	launcher, _ = place.runs(job)
	t.Logf("it ran %s after JobSet was installed", time.Since(installed).Round(time.Second))
	place.Exit(launcher, 0, report("", 2))
	place.untilPhase(job, training.PhaseSucceeded)
}

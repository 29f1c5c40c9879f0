// SPDX-License-Identifier: Apache-2.0

//go:build operator

package peers

import "testing"

// An MPIJob waits by Kueue's own integration.
func TestKueueWithMPIJobs(t *testing.T) {
	t.Run("one waits for quota", triremeMPIJob.waitsForQuota)
	t.Run("one stops and resumes", triremeMPIJob.stopsAndResumes)
	t.Run("one gives way", triremeMPIJob.givesWay)
	t.Run("one finishes", triremeMPIJob.finishes)
	t.Run("one runs in one rack", triremeMPIJob.runsInOneRack)
	t.Run("one waits for a rack", triremeMPIJob.waitsForRack)
	t.Run("one says why it waits", triremeMPIJob.saysWhyItWaits)
}

// A TrainJob waits as the JobSet that it becomes.
func TestKueueWithTrainJobs(t *testing.T) {
	t.Run("one waits for quota", trainJob.waitsForQuota)
	t.Run("one stops and resumes", trainJob.stopsAndResumes)
	t.Run("one gives way", trainJob.givesWay)
	t.Run("one finishes", trainJob.finishes)
	t.Run("one runs in one rack", trainJob.runsInOneRack)
	t.Run("one waits for a rack", trainJob.waitsForRack)
	t.Run("one says why it waits", trainJob.saysWhyItWaits)
}

// SPDX-License-Identifier: Apache-2.0

package peers

import "testing"

func TestKueueWithJobs(t *testing.T) {
	t.Run("one waits for quota", batchJob.waitsForQuota)
	t.Run("one stops and resumes", batchJob.stopsAndResumes)
	t.Run("one gives way", batchJob.givesWay)
	t.Run("one finishes", batchJob.finishes)
}

func TestKueueWithJobSets(t *testing.T) {
	t.Run("one waits for quota", jobSet.waitsForQuota)
	t.Run("one stops and resumes", jobSet.stopsAndResumes)
	t.Run("one gives way", jobSet.givesWay)
	t.Run("one finishes", jobSet.finishes)
	t.Run("one runs in one rack", jobSet.runsInOneRack)
	t.Run("one waits for a rack", jobSet.waitsForRack)
}

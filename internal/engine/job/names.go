// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// WorkerName is the name of a worker of an MPIJob, and its host name.
func WorkerName(job string, index int32) string {
	return fmt.Sprintf("%s%s%d", job, traits[KindMPIJob].WorkerHostInfix, index)
}

// LongestName is the longest name that is derived from a job's name and must be a valid
// DNS label. Admission checks the length of job names with it.
func (k Kind) LongestName(name string, workers int32) string {
	traits := k.Traits()
	launcher := name + traits.LauncherHostSuffix + traits.PodNameSuffix
	worker := fmt.Sprintf("%s%s%d%s", name, traits.WorkerHostInfix, max(workers-1, 0), traits.PodNameSuffix)
	if len(worker) > len(launcher) {
		return worker
	}
	return launcher
}

// MaxNameLength is how long the name of a job may be.
func (k Kind) MaxNameLength(workers int32) int {
	return utilvalidation.DNS1035LabelMaxLength - len(k.LongestName("", workers))
}

// retrySuffix is the end of a name that RetryName returned.
var retrySuffix = regexp.MustCompile(`-retry-[0-9]+$`)

// RetryName is the name of a job that is created again at this moment, in Unix seconds.
// It is never longer than admission accepts, and does not grow with every retry. The end
// of a long name is replaced by a hash, so that jobs whose names differ only there can
// be retried in the same second.
func (k Kind) RetryName(name string, workers int32, moment int64) string {
	base, suffix := retrySuffix.ReplaceAllString(name, ""), fmt.Sprintf("-retry-%d", moment)
	if maxLength := k.MaxNameLength(workers) - len(suffix); len(base) > maxLength {
		hash := fnv.New32a()
		hash.Write([]byte(base))
		hashSuffix := fmt.Sprintf("-%06x", hash.Sum32()&0xffffff)
		base = strings.TrimRight(base[:max(maxLength-len(hashSuffix), 1)], "-") + hashSuffix
	}
	return base + suffix
}

// SPDX-License-Identifier: Apache-2.0

package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// none leaves every pod to its scheduler, one by one.
type none struct{}

func (none) Name() job.Scheduler                            { return None }
func (none) GroupKind() schema.GroupVersionKind             { return schema.GroupVersionKind{} }
func (none) Group(*job.Job, map[string]string) Object       { return nil }
func (none) Join(_ *job.Job, _ *corev1.PodTemplateSpec)     {}
func (none) MinMember(Object) (minMember int32, found bool) { return 0, false }

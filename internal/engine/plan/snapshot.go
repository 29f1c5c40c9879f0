// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const snapshotPrefix = "trireme-runtime-"

// SnapshotName is the name of the snapshot of a runtime.
func SnapshotName(digest string) string { return snapshotPrefix + job.ShortDigest(digest) }

// IsSnapshotName reports whether a name may be that of a snapshot.
func IsSnapshotName(name string) bool { return strings.HasPrefix(name, snapshotPrefix) }

// Snapshot is the copy of a runtime that TrainJobs of a namespace were created from.
// They share it, so it has no owner; the operator deletes it after the last of them.
func Snapshot(namespace, digest string, content []byte) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: SnapshotName(digest), Labels: map[string]string{training.LabelRuntimeDigest: job.ShortDigest(digest)},
		},
		Data: runtime.RawExtension{Raw: content}, Revision: 1,
	}
}

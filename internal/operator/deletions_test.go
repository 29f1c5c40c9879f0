package operator

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trireme-mpi/trireme/api/training"
)

func TestDeletions(t *testing.T) {
	worker := func(name, attempt string, deleted bool) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + attempt), Labels: map[string]string{
			training.LabelReplicaType: training.RoleWorker, "jobset.sigs.k8s.io/restart-attempt": attempt,
		}}}
		if deleted {
			pod.DeletionTimestamp = new(metav1.Now())
		}
		return pod
	}
	launcher := worker("launcher", "0", true)
	launcher.Labels[training.LabelReplicaType] = training.RoleLauncher
	type change struct {
		pod  *corev1.Pod
		gone bool
	}
	tests := map[string]struct {
		changes []change
		want    []string
	}{
		"in the order of the deletions": {[]change{{worker("b", "0", true), false}, {worker("a", "0", true), false}, {worker("b", "0", true), true}}, []string{"b", "a"}},
		"gone without a moment's grace": {[]change{{worker("b", "0", false), true}, {worker("a", "0", true), false}}, []string{"b", "a"}},
		"a pod that lives":              {[]change{{worker("a", "0", false), false}}, nil},
		"made anew under its name":      {[]change{{worker("a", "", true), true}, {worker("a", "", false), false}}, nil},
		"the next attempt":              {[]change{{worker("a", "0", true), true}, {worker("b", "1", true), false}}, []string{"b"}},
		"a late one of an attempt past": {[]change{{worker("b", "1", true), false}, {worker("a", "0", true), true}}, []string{"b"}},
		"a launcher":                    {[]change{{launcher, true}}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			job, another := types.NamespacedName{Namespace: "team", Name: "train"}, types.NamespacedName{Namespace: "team", Name: "other"}
			noted := &deletions{}
			for _, change := range test.changes {
				noted.note(job, change.pod, change.gone)
			}
			var found []string
			for _, pod := range noted.of(job) {
				found = append(found, pod.Name)
				if pod.DeletionTimestamp == nil {
					t.Errorf("%s has no time of its deletion", pod.Name)
				}
			}
			if !slices.Equal(found, test.want) {
				t.Errorf("found %q, want %q", found, test.want)
			}
			if found := noted.of(another); len(found) > 0 {
				t.Errorf("another job has %d", len(found))
			}
			noted.forget(job)
			if found := noted.of(job); len(found) > 0 {
				t.Errorf("%d are left", len(found))
			}
		})
	}
}

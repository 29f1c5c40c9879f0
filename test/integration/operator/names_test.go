// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// secretName is that of a job's keys.
func secretName(job client.Object) string {
	if isMPIJob(job) {
		return job.GetName() + "-ssh-key"
	}
	return job.GetName() + "-ssh"
}

// Two pairs of keys, of which nobody has both halves; a job that has failed has
// none any more.
func TestKeys(t *testing.T) {
	t.Parallel()
	bothKinds(t, func(place *place, job client.Object) {
		if mpiJob, is := job.(*v2beta1.MPIJob); is {
			mpiJob.Spec.RunPolicy.BackoffLimit = new(int32(0))
		}
		place.createEventually(job)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName(job)}}
		place.Until("there are keys", secret, func() error { return nil })
		if got, want := slices.Sorted(maps.Keys(secret.Data)), []string{"authorized_keys", "host_key", "host_key.pub", "id_rsa", "id_rsa.pub"}; !slices.Equal(got, want) || secret.Type != corev1.SecretTypeOpaque {
			place.Errorf("the Secret of type %s has %q, want %q", secret.Type, got, want)
		}
		user, host := wantPair(place, secret, "id_rsa"), wantPair(place, secret, "host_key")
		if bytes.Equal(user.Marshal(), host.Marshal()) {
			place.Error("users and hosts have the same key")
		}
		if authorized, _, _, _, err := ssh.ParseAuthorizedKey(secret.Data["authorized_keys"]); err != nil || !bytes.Equal(authorized.Marshal(), user.Marshal()) {
			place.Errorf("another key than the user's may log in (%v)", err)
		}
		launcher, _ := place.runs(job)
		place.Exit(launcher, 1, "")
		place.untilPhase(job, training.PhaseFailed)
		place.Eventually("the keys are gone", func() error {
			if err := place.Get(secret, secret.Name); client.IgnoreNotFound(err) != nil || err == nil {
				return fmt.Errorf("they are not (%v)", err)
			}
			return nil
		})
	})
}

// wantPair reads a pair of keys, and returns its public half.
func wantPair(place *place, secret *corev1.Secret, name string) ssh.PublicKey {
	place.Helper()
	private, err := ssh.ParsePrivateKey(secret.Data[name])
	if err != nil {
		place.Fatalf("%s: %v", name, err)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(secret.Data[name+".pub"])
	if err != nil || !bytes.Equal(public.Marshal(), private.PublicKey().Marshal()) {
		place.Fatalf("%s.pub is not the other half of %s (%v)", name, name, err)
	}
	return public
}

// Names that somebody else has taken: what is there is left alone, and the job
// says what is in its way.
func TestNamesThatAreTaken(t *testing.T) {
	t.Parallel()
	pod := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}}}}
	}
	copied := map[string]string{
		training.LabelJobName: "train", training.LabelJobType: "mpijob", training.LabelReplicaType: "worker", training.LabelReplicaIndex: "0",
	}
	theirJob := batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "theirs", Image: "registry.example/theirs:1"}},
	}}}
	for name, tc := range map[string]struct {
		job    client.Object
		theirs client.Object
		what   string
	}{
		"Secret":                    {mpiJob("train"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "train-ssh-key"}, Data: map[string][]byte{"id_rsa": []byte("theirs")}}, "Secret train-ssh-key"},
		"ConfigMap":                 {mpiJob("train"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "train-hostfile"}}, "ConfigMap train-hostfile"},
		"Service":                   {mpiJob("train"), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "train-worker"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, "Service train-worker"},
		"pod":                       {mpiJob("train"), pod("train-worker-0", nil), "Pod train-worker-0"},
		"pod with copied labels":    {mpiJob("train"), pod("train-worker-0", copied), "Pod train-worker-0"},
		"Job":                       {mpiJob("train"), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "train-launcher"}, Spec: theirJob}, "Job train-launcher"},
		"Secret of a TrainJob":      {trainJob("", "train"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "train-ssh"}}, "Secret train-ssh"},
		"ConfigMap of a TrainJob":   {trainJob("", "train"), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "train-hostfile"}}, "ConfigMap train-hostfile"},
		"JobSet of somebody else's": {trainJob("", "train"), &jobset.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "train"}}, "JobSet train"},
	} {
		t.Run(name, func(t *testing.T) {
			place := parallel(t)
			place.Create(runtime("mpi"))
			place.createForged(tc.theirs)
			version := tc.theirs.GetResourceVersion()
			place.createEventually(tc.job)
			place.untilPhase(tc.job, training.PhaseFailed)
			want := tc.what + " could not be created: an object with this name exists that does not belong to the job. Delete it, or give the job another name."
			if message := progressOf(tc.job).FailureMessage; !strings.HasPrefix(message, want) {
				t.Errorf("the job says %q, want %q", message, want)
			}
			place.Eventually("what was made so far is gone", func() error { return place.wantNoWork(tc.theirs) })
			place.stays("what is theirs stays", func() error {
				if err := place.Get(tc.theirs, tc.theirs.GetName()); err != nil || tc.theirs.GetResourceVersion() != version || tc.theirs.GetDeletionTimestamp() != nil {
					return fmt.Errorf("it is another now (%v)", err)
				}
				return nil
			})
		})
	}
}

// wantNoWork: there is nothing that runs or holds a key, except for what is
// theirs. The workload stays and tells how the job ended.
func (place *place) wantNoWork(theirs client.Object) error {
	for name, object := range place.objects() {
		if object.UID == theirs.GetUID() {
			continue
		}
		switch object.Kind {
		case "Pod", "Secret", "PodGroup":
			return fmt.Errorf("%s is there", name)
		}
	}
	return nil
}

// A ControllerRevision that has the name of a snapshot and another content is neither
// used nor changed. The job starts once it is deleted.
func TestForgedSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	place := sharedCluster.For(t).newPlace(t, withoutAdmission)
	job := trainJob("", "train")
	place.Create(job)
	place.Until("the job waits for its runtime", job, func() error { return wantConditions(job, "TrainingComplete", "False RuntimeNotFound") })
	made := runtime("mpi")
	forged := snapshotOf(t, made)
	forged.Data.Raw = []byte(`{"mlPolicy":{"mpiImplementation":"OpenMPI"}}`)
	place.Create(forged)
	place.Create(made)
	place.Until("the job says what is in its way", job, func() error {
		_, message := conditionOf(job, v2alpha1.ConditionTrainingComplete)
		if !strings.Contains(message, forged.Name) {
			return fmt.Errorf("it says %q", message)
		}
		return wantConditions(job, "TrainingComplete", "False NameTaken")
	})
	if objects := place.objects(); len(objects) != 1 || objects["ControllerRevision/trireme-runtime"].ResourceVersion != forged.ResourceVersion {
		t.Errorf("there are %v", objects)
	}
	place.Delete(forged)
	place.untilObjects(trainJobObjects...)
}

// A group that is there is taken if it has the right size.
func TestPodGroupsThatAreThere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		members int64
		want    string
	}{
		"of another size": {members: 5, want: "PodGroup minMember mismatch: expected 3, got 5"},
		"of its size":     {members: 3},
	} {
		t.Run(name, func(t *testing.T) {
			bothKinds(t, func(place *place, job client.Object) {
				group := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": tc.members}}}
				group.SetAPIVersion("scheduling.x-k8s.io/v1alpha1")
				group.SetKind("PodGroup")
				group.SetName("train")
				place.Create(group)
				version := group.GetResourceVersion()
				place.createEventually(job)
				if tc.want == "" {
					place.runs(job)
				} else {
					place.untilPhase(job, training.PhaseFailed)
					if message := progressOf(job).FailureMessage; !strings.Contains(message, tc.want) {
						place.Errorf("the job says %q, want %q", message, tc.want)
					}
					place.Eventually("there are no pods", func() error { return place.wantNoWork(group) })
				}
				if mustGet(place, group, "train").GetResourceVersion() != version {
					place.Error("the group has changed")
				}
			})
		})
	}
}

// A job that mpi-operator has begun has conditions, and no phase. It is
// mpi-operator's to end, even where it is resumed meanwhile.
func TestJobsThatMPIOperatorHasBegun(t *testing.T) {
	place := parallel(t)
	job := mpiJob("train", suspended)
	place.Create(job)
	place.untilSuspended(job)
	job.Status = v2beta1.MPIJobStatus{Conditions: []v2beta1.JobCondition{{
		Type: v2beta1.JobCreated, Status: corev1.ConditionTrue, Reason: "MPIJobCreated", Message: "MPIJob is created.",
		LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}}
	if err := place.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	place.Patch(job, `{"spec":{"runPolicy":{"suspend":false}}}`)
	version := job.ResourceVersion
	place.stays("the job is left alone", func() error {
		if mustGet(place, job, job.Name).ResourceVersion != version {
			return fmt.Errorf("its status is %+v", job.Status)
		}
		return place.wantObjects()
	})
}

// What another cluster shall do is not touched here.
func TestJobsOfMultiKueue(t *testing.T) {
	place := parallel(t)
	place.Create(runtime("mpi"))
	jobs := []client.Object{
		mpiJob("mpi", func(job *v2beta1.MPIJob) { job.Spec.RunPolicy.ManagedBy = new(training.ManagedByMultiKueue) }),
	}
	for _, job := range jobs {
		place.createEventually(job)
	}
	place.stays("jobs of MultiKueue are left alone", func() error {
		var found []error
		for _, job := range jobs {
			version := job.GetResourceVersion()
			if err := place.Get(job, job.GetName()); err != nil || job.GetResourceVersion() != version {
				found = append(found, fmt.Errorf("%s has changed (%v): %+v", job.GetName(), err, progressOf(job)))
			}
		}
		return errors.Join(append(found, place.wantObjects())...)
	})
}

// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

var everything = Available{Served: GroupKinds()}

// serving are the preferred kinds of schedulers.
func serving(names ...job.Scheduler) (kinds []schema.GroupVersionKind) {
	for _, name := range names {
		kinds = append(kinds, Kinds(name)[0])
	}
	return kinds
}

// Clusters with the gang scheduling of Kubernetes.
var (
	hasAlpha = Available{Served: []schema.GroupVersionKind{nativeAlpha}}
	hasBeta  = Available{Served: []schema.GroupVersionKind{nativeBeta}}
)

func TestChoose(t *testing.T) {
	const partial = "; pods are scheduled one by one, and some may hold their nodes while others wait"
	tests := map[string]struct {
		job   *job.Job
		has   Available
		want  Backend
		words string
	}{
		"one pod needs none": {job: mpiJob(alone), has: everything, want: none{},
			words: "No gang scheduling: the job has one pod"},
		"one pod, in spite of the runtime": {job: trainJob(alone, withScheduler(job.Volcano)), want: none{},
			words: "No gang scheduling: the job has one pod"},

		"the runtime sets coscheduling": {job: trainJob(withScheduler(job.Coscheduling)), has: everything, want: coscheduling{DefaultCoschedulerName},
			words: "Gang scheduling by coscheduling: the runtime sets it"},
		"the configured name of the scheduler": {job: trainJob(withScheduler(job.Coscheduling)), has: Available{Served: serving(job.Coscheduling), CoschedulerName: "gangs"}, want: coscheduling{"gangs"},
			words: "Gang scheduling by coscheduling: the runtime sets it"},
		"the runtime sets volcano": {job: trainJob(withScheduler(job.Volcano), volcanoQueueOf("gold")), has: everything, want: volcano{"volcano"},
			words: "Gang scheduling by volcano: the runtime sets it"},
		"the runtime sets native": {job: trainJob(withScheduler(job.Native)), has: everything, want: native{kind: nativeBeta},
			words: "Gang scheduling by native: the runtime sets it"},
		"the runtime sets none": {job: trainJob(withScheduler(None)), has: everything, want: none{},
			words: "No gang scheduling: the runtime sets it" + partial},
		"the pods name the scheduler that the runtime sets": {job: trainJob(withScheduler(job.Volcano), scheduledBy("", "volcano-gpu")), has: everything, want: volcano{"volcano-gpu"},
			words: "Gang scheduling by volcano: the runtime sets it"},
		"Kueue and coscheduling": {job: trainJob(withScheduler(job.Coscheduling), kueue("gpus")), has: everything, want: coscheduling{DefaultCoschedulerName},
			words: "Gang scheduling by coscheduling: the runtime sets it"},

		"all schedulers": {job: mpiJob(), has: everything, want: coscheduling{DefaultCoschedulerName},
			words: "Gang scheduling by coscheduling: this cluster serves PodGroup of scheduling.x-k8s.io/v1alpha1"},
		"Volcano before the alpha": {job: mpiJob(), has: Available{Served: serving(job.Volcano, job.Native)}, want: volcano{"volcano"},
			words: "Gang scheduling by volcano: this cluster serves PodGroup of scheduling.volcano.sh/v1beta1"},
		"KAI before the alpha": {job: mpiJob(), has: Available{Served: serving(job.KAI, job.Native)}, want: kai{"kai-scheduler"},
			words: "Gang scheduling by kai: this cluster serves PodGroup of scheduling.run.ai/v2alpha2"},
		"a queue where only KAI has queues": {job: mpiJob(volcanoQueueOf("gold")), has: Available{Served: serving(job.Coscheduling, job.KAI)}, want: kai{"kai-scheduler"},
			words: "Gang scheduling by kai: the job sets the queue gold"},
		"the beta alone": {job: trainJob(), has: hasBeta, want: native{kind: nativeBeta},
			words: "Gang scheduling by native: this cluster serves PodGroup of scheduling.k8s.io/v1beta1"},
		"the runtime sets native, on Kubernetes 1.36": {job: trainJob(withScheduler(job.Native), scheduledBy("", "mine")), has: hasAlpha, want: native{nativeAlpha, "mine"},
			words: "Gang scheduling by native: the runtime sets it"},
		"the alpha alone": {job: trainJob(), has: hasAlpha, want: native{kind: nativeAlpha},
			words: "Gang scheduling by native: this cluster serves PodGroup of scheduling.k8s.io/v1alpha2"},
		"no scheduler": {job: trainJob(), want: none{},
			words: "No gang scheduling: this cluster has none of the gang schedulers coscheduling, volcano, kai and native" + partial},
		"the pods name the default scheduler": {job: mpiJob(scheduledBy("default-scheduler", "default-scheduler")), has: everything, want: coscheduling{DefaultCoschedulerName},
			words: "Gang scheduling by coscheduling: this cluster serves PodGroup of scheduling.x-k8s.io/v1alpha1"},
		"the default scheduler does coscheduling": {job: mpiJob(), has: Available{Served: serving(job.Coscheduling), CoschedulerName: "default-scheduler"}, want: coscheduling{"default-scheduler"},
			words: "Gang scheduling by coscheduling: this cluster serves PodGroup of scheduling.x-k8s.io/v1alpha1"},

		"the pods name Volcano": {job: mpiJob(scheduledBy("volcano", "volcano")), has: everything, want: volcano{"volcano"},
			words: "Gang scheduling by volcano: the pods name the scheduler volcano"},
		"the workers alone name Volcano": {job: mpiJob(scheduledBy("", "volcano")), has: everything, want: volcano{"volcano"},
			words: "Gang scheduling by volcano: the pods name the scheduler volcano"},
		"the launcher alone names Volcano": {job: mpiJob(scheduledBy("volcano", "default-scheduler")), has: everything, want: volcano{"volcano"},
			words: "Gang scheduling by volcano: the pods name the scheduler volcano"},
		"the pods name Volcano, which is missing": {job: mpiJob(scheduledBy("volcano", "volcano")), has: Available{Served: serving(job.Coscheduling, job.Native)}, want: none{},
			words: "No gang scheduling: the pods name the scheduler volcano, but this cluster does not serve PodGroup of scheduling.volcano.sh/v1beta1" + partial},
		"the pods name the configured coscheduler": {job: mpiJob(scheduledBy("gangs", "gangs")), has: Available{Served: serving(job.Coscheduling, job.Volcano), CoschedulerName: "gangs"}, want: coscheduling{"gangs"},
			words: "Gang scheduling by coscheduling: the pods name the scheduler gangs"},
		"the pods name an unknown scheduler": {job: mpiJob(scheduledBy("mine", "mine")), has: everything, want: none{},
			words: "No gang scheduling: the pods name the scheduler mine, which is not a known gang scheduler" + partial},
		"launcher and workers disagree": {job: mpiJob(scheduledBy("volcano", "mine")), has: everything, want: none{},
			words: "No gang scheduling: the launcher names the scheduler volcano and the workers mine" + partial},

		"a queue": {job: mpiJob(volcanoQueueOf("gold")), has: everything, want: volcano{"volcano"},
			words: "Gang scheduling by volcano: the job sets the queue gold"},
		"a queue without Volcano": {job: mpiJob(volcanoQueueOf("gold")), has: Available{Served: serving(job.Coscheduling)}, want: coscheduling{DefaultCoschedulerName},
			words: "Gang scheduling by coscheduling: this cluster serves PodGroup of scheduling.x-k8s.io/v1alpha1; the queue gold is not used, because only volcano and kai have queues"},
		"a queue without schedulers": {job: mpiJob(volcanoQueueOf("gold")), want: none{},
			words: "No gang scheduling: this cluster has none of the gang schedulers coscheduling, volcano, kai and native" + partial + "; the queue gold is not used, because only volcano and kai have queues"},
		"the scheduler of the pods before the queue": {job: mpiJob(volcanoQueueOf("gold"), scheduledBy("mine", "mine")), has: everything, want: none{},
			words: "No gang scheduling: the pods name the scheduler mine, which is not a known gang scheduler" + partial + "; the queue gold is not used, because only volcano and kai have queues"},

		"Kueue and the alpha, for a TrainJob": {job: trainJob(kueue("gpus")), has: hasAlpha, want: native{kind: nativeAlpha},
			words: "Gang scheduling by native: this cluster serves PodGroup of scheduling.k8s.io/v1alpha2"},
		"Kueue and a runtime that sets the alpha": {job: trainJob(kueue("gpus"), withScheduler(job.Native)), has: everything, want: native{kind: nativeBeta},
			words: "Gang scheduling by native: the runtime sets it"},
		"Kueue and the alpha, for an MPIJob": {job: mpiJob(kueue("gpus")), has: hasAlpha, want: native{kind: nativeAlpha},
			words: "Gang scheduling by native: this cluster serves PodGroup of scheduling.k8s.io/v1alpha2"},
		"Kueue and everything": {job: trainJob(kueue("gpus")), has: everything, want: coscheduling{DefaultCoschedulerName},
			words: "Gang scheduling by coscheduling: this cluster serves PodGroup of scheduling.x-k8s.io/v1alpha1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, words, err := Choose(tc.job, tc.has)
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("%#v, want %#v", got, tc.want)
			}
			if diff := cmp.Diff(tc.words, words); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChooseErrors(t *testing.T) {
	tests := map[string]struct {
		job  *job.Job
		has  Available
		want string
	}{
		"no coscheduling": {job: trainJob(withScheduler(job.Coscheduling)), has: Available{Served: serving(job.Volcano, job.Native)},
			want: "the runtime sets coscheduling, but this cluster does not serve PodGroup of scheduling.x-k8s.io/v1alpha1: " +
				"install scheduler-plugins with its CRDs, or change the runtime's podGroupPolicy"},
		"no Volcano": {job: trainJob(withScheduler(job.Volcano)), has: Available{Served: serving(job.Coscheduling, job.Native)},
			want: "the runtime sets volcano, but this cluster does not serve PodGroup of scheduling.volcano.sh/v1beta1: " +
				"install Volcano, or change the runtime's podGroupPolicy"},
		"no native gangs": {job: trainJob(withScheduler(job.Native)), has: Available{Served: serving(job.Coscheduling, job.Volcano)},
			want: "the runtime sets native, but this cluster does not serve PodGroup of scheduling.k8s.io/v1beta1 or v1alpha2: " +
				"run Kubernetes 1.37 or 1.36 with that API and the feature gate GenericWorkload turned on (1.36 also needs GangScheduling), or change the runtime's podGroupPolicy"},
		"two schedulers": {job: trainJob(withScheduler(job.Native), scheduledBy("mine", "yours")), has: everything,
			want: "the runtime sets native, but the launcher names the scheduler mine and the workers yours: name the same in both templates, or none"},
		"an unknown scheduler": {job: trainJob(withScheduler("yunikorn")), has: everything,
			want: `the runtime sets the gang scheduler "yunikorn"; supported are coscheduling, volcano, kai and native`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			backend, message, err := Choose(tc.job, tc.has)
			if err == nil {
				t.Fatalf("%#v, want an error", backend)
			}
			if backend != nil || message != "" {
				t.Errorf("%#v, %q with the error", backend, message)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// All pods of a gang must have the same scheduler: the one that their templates name, if
// they do.
func TestGangHasOneScheduler(t *testing.T) {
	names := []string{"", "default-scheduler", "volcano", "mine"}
	for _, launcher := range names {
		for _, worker := range names {
			for _, scheduler := range []job.Scheduler{"", job.Coscheduling, job.Volcano, job.Native} {
				j := trainJob(withScheduler(scheduler), scheduledBy(launcher, worker))
				backend, _, err := Choose(j, everything)
				if err != nil || backend.Name() == None {
					continue
				}
				backend.Join(j, &j.Launcher.Template)
				backend.Join(j, &j.Worker.Template)
				first, second := j.Launcher.Template.Spec.SchedulerName, j.Worker.Template.Spec.SchedulerName
				if strings.TrimPrefix(first, "default-scheduler") != strings.TrimPrefix(second, "default-scheduler") {
					t.Errorf("launcher %q, worker %q, runtime %q: %s sets %q and %q", launcher, worker, scheduler, backend.Name(), first, second)
				}
				for _, named := range []string{launcher, worker} {
					if named != "" && named != "default-scheduler" && named != first {
						t.Errorf("launcher %q, worker %q, runtime %q: %s sets %q", launcher, worker, scheduler, backend.Name(), first)
					}
				}
				if backend.Name() != job.Native && first == "" {
					t.Errorf("launcher %q, worker %q, runtime %q: %s leaves it to the default scheduler", launcher, worker, scheduler, backend.Name())
				}
			}
		}
	}
}

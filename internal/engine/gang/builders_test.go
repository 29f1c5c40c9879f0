package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

type option func(*job.Job)

// mpiJob has a launcher and three workers, of which all must be placed.
func mpiJob(options ...option) *job.Job {
	made := &job.Job{
		Kind: job.KindMPIJob, Namespace: "team-a", Name: "resnet",
		Launcher: job.Role{Replicas: 1, Template: template("launcher", "500m", "1Gi")},
		Worker:   job.Role{Replicas: 3, Template: template("worker", "16", "64Gi")},
		Gang:     job.Gang{MinMember: 4},
	}
	for _, option := range options {
		option(made)
	}
	return made
}

func trainJob(options ...option) *job.Job {
	return mpiJob(append([]option{func(made *job.Job) { made.Kind, made.Name = job.KindTrainJob, "bert" }}, options...)...)
}

// template has limits only, which are then its requests, too.
func template(name, cpu, memory string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:      name,
		Resources: corev1.ResourceRequirements{Limits: list("cpu", cpu, "memory", memory)},
	}}}}
}

// list is made of names and quantities in turn.
func list(pairs ...string) corev1.ResourceList {
	made := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		made[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return made
}

func asksFor(scheduler job.Scheduler) option {
	return func(made *job.Job) { made.Gang.Scheduler = scheduler }
}

func kueue(queue string) option { return func(made *job.Job) { made.Queue = queue } }

func volcanoQueueOf(queue string) option { return func(made *job.Job) { made.Gang.Queue = queue } }

func timeout(seconds int32) option {
	return func(made *job.Job) { made.Gang.TimeoutSeconds = seconds }
}

func priority(class string) option {
	return func(made *job.Job) { made.Gang.PriorityClass = class }
}

func minMember(pods int32) option { return func(made *job.Job) { made.Gang.MinMember = pods } }

func minResourcesOf(pairs ...string) option {
	return func(made *job.Job) { made.Gang.MinResources = list(pairs...) }
}

// scheduledBy is what the templates of launcher and workers name.
func scheduledBy(launcher, worker string) option {
	return func(made *job.Job) {
		made.Launcher.Template.Spec.SchedulerName = launcher
		made.Worker.Template.Spec.SchedulerName = worker
	}
}

// alone is a job of a launcher that does the work itself.
func alone(made *job.Job) { made.Worker.Replicas, made.Gang.MinMember = 0, 1 }

// decorated has templates with labels and annotations of the user's, one of
// which names a group.
func decorated(made *job.Job) {
	for _, role := range []*job.Role{&made.Launcher, &made.Worker} {
		role.Template.Labels = map[string]string{"team": "a"}
		role.Template.Annotations = map[string]string{"note": "ours", volcanoOwnGroup: "another"}
	}
}

// SPDX-License-Identifier: Apache-2.0

package gang

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

type option func(*job.Job)

// mpiJob has a launcher and three workers, and all of them must be scheduled.
func mpiJob(options ...option) *job.Job {
	j := &job.Job{
		Kind: job.KindMPIJob, Namespace: "team-a", Name: "resnet",
		Launcher: job.Role{Replicas: 1, Template: template("launcher", "500m", "1Gi")},
		Worker:   job.Role{Replicas: 3, Template: template("worker", "16", "64Gi")},
		Gang:     job.Gang{MinMember: 4},
	}
	for _, option := range options {
		option(j)
	}
	return j
}

func trainJob(options ...option) *job.Job {
	return mpiJob(append([]option{func(j *job.Job) { j.Kind, j.Name = job.KindTrainJob, "bert" }}, options...)...)
}

// template has limits only, which are then its requests too.
func template(name, cpu, memory string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name:      name,
		Resources: corev1.ResourceRequirements{Limits: list("cpu", cpu, "memory", memory)},
	}}}}
}

// list is a list of resources, from alternating names and quantities.
func list(pairs ...string) corev1.ResourceList {
	j := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		j[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return j
}

func withScheduler(scheduler job.Scheduler) option {
	return func(j *job.Job) { j.Gang.Scheduler = scheduler }
}

func kueue(queue string) option { return func(j *job.Job) { j.Queue = queue } }

func volcanoQueueOf(queue string) option { return func(j *job.Job) { j.Gang.Queue = queue } }

func workerPriority(class string) option {
	return func(j *job.Job) { j.Worker.Template.Spec.PriorityClassName = class }
}

func timeout(seconds int32) option {
	return func(j *job.Job) { j.Gang.TimeoutSeconds = seconds }
}

func priority(class string) option {
	return func(j *job.Job) { j.Gang.PriorityClass = class }
}

func minMember(pods int32) option { return func(j *job.Job) { j.Gang.MinMember = pods } }

func minResourcesOf(pairs ...string) option {
	return func(j *job.Job) { j.Gang.MinResources = list(pairs...) }
}

// scheduledBy sets the schedulerName of launcher and workers.
func scheduledBy(launcher, worker string) option {
	return func(j *job.Job) {
		j.Launcher.Template.Spec.SchedulerName = launcher
		j.Worker.Template.Spec.SchedulerName = worker
	}
}

// alone is a job that runs on its launcher alone.
func alone(j *job.Job) { j.Worker.Replicas, j.Gang.MinMember = 0, 1 }

// decorated has templates with labels and annotations of the user, one of which names a
// group.
func decorated(j *job.Job) {
	for _, role := range []*job.Role{&j.Launcher, &j.Worker} {
		role.Template.Labels = map[string]string{"team": "a"}
		role.Template.Annotations = map[string]string{"note": "ours", volcanoToolsGroup: "another"}
	}
}

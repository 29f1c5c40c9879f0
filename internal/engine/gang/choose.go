// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// partialStart describes the effect of having no gang scheduling.
const partialStart = "pods are scheduled one by one, and some may hold their nodes while others wait"

// Choose chooses the gang scheduler of a job, and explains the choice in a message for a
// condition. An error says what to install or change first.
func Choose(j *job.Job, available Available) (Backend, string, error) {
	if j.Pods() <= 1 {
		return none{}, "No gang scheduling: the job has one pod", nil
	}
	if j.Gang.External {
		return none{}, "Gang scheduling by the PodGroup that Kubeflow's Trainer has created", nil
	}
	if j.Gang.Scheduler != "" {
		backend, err := configuredBackend(j, &available)
		if err != nil {
			return nil, "", err
		}
		return backend, choiceMessage(j, backend, "the runtime sets it"), nil
	}
	backend, why := discoveredBackend(j, &available)
	return backend, choiceMessage(j, backend, why), nil
}

func choiceMessage(j *job.Job, backend Backend, why string) string {
	message := fmt.Sprintf("Gang scheduling by %s: %s", backend.Name(), why)
	if backend.Name() == None {
		message = fmt.Sprintf("No gang scheduling: %s; %s", why, partialStart)
	}
	if queue := j.Gang.Queue; queue != "" && !HasQueues(backend.Name()) {
		message += fmt.Sprintf("; the queue %s is not used, because only %s have queues", queue, joinNames(namesWithQueues()))
	}
	return message
}

// configuredBackend is the scheduler that the runtime sets. A schedulerName in the
// templates is then taken as that scheduler's name.
func configuredBackend(j *job.Job, available *Available) (Backend, error) {
	name := j.Gang.Scheduler
	if name == None {
		return none{}, nil
	}
	for i := range schedulers {
		s := &schedulers[i]
		if s.name != name {
			continue
		}
		kind, served := available.kindOf(s)
		if !served {
			return nil, fmt.Errorf("the runtime sets %s, but this cluster does not serve %s: %s, or change the runtime's podGroupPolicy",
				name, s.api(), s.remedy)
		}
		podScheduler, err := podScheduler(j)
		if err != nil {
			return nil, fmt.Errorf("the runtime sets %s, but %w: name the same in both templates, or none", name, err)
		}
		return available.backendOf(s, kind, podScheduler), nil
	}
	return nil, fmt.Errorf("the runtime sets the gang scheduler %q; supported are %s", name, ListNames())
}

// discoveredBackend is the scheduler that the pods name, or else the preferred one of
// those that the cluster has.
func discoveredBackend(j *job.Job, available *Available) (Backend, string) {
	podScheduler, err := podScheduler(j)
	if err != nil {
		return none{}, err.Error()
	}
	if podScheduler != "" {
		return backendOfPodScheduler(available, podScheduler)
	}
	// A job with a queue needs a scheduler that has queues.
	if j.Gang.Queue != "" {
		for i := range schedulers {
			s := &schedulers[i]
			if kind, served := available.kindOf(s); served && s.hasQueues {
				return available.backendOf(s, kind, ""), fmt.Sprintf("the job sets the queue %s", j.Gang.Queue)
			}
		}
	}
	for i := range schedulers {
		s := &schedulers[i]
		if kind, served := available.kindOf(s); served {
			return available.backendOf(s, kind, ""), fmt.Sprintf("this cluster serves %s", apiOf(kind))
		}
	}
	return none{}, fmt.Sprintf("this cluster has none of the gang schedulers %s", ListNames())
}

// backendOfPodScheduler is the backend for the schedulerName of the pods.
func backendOfPodScheduler(available *Available, scheduler string) (Backend, string) {
	for i := range schedulers {
		s := &schedulers[i]
		if available.podScheduler(s) != scheduler {
			continue
		}
		kind, served := available.kindOf(s)
		if !served {
			return none{}, fmt.Sprintf("the pods name the scheduler %s, but this cluster does not serve %s", scheduler, s.api())
		}
		return s.backend(kind, scheduler), fmt.Sprintf("the pods name the scheduler %s", scheduler)
	}
	return none{}, fmt.Sprintf("the pods name the scheduler %s, which is not a known gang scheduler", scheduler)
}

// podScheduler is the schedulerName of the templates; empty if they set none. If only
// one of them sets it, it applies to both.
func podScheduler(j *job.Job) (string, error) {
	launcher, worker := schedulerOf(&j.Launcher.Template), schedulerOf(&j.Worker.Template)
	switch {
	case launcher == "" || launcher == worker:
		return worker, nil
	case worker == "":
		return launcher, nil
	default:
		return "", fmt.Errorf("the launcher names the scheduler %s and the workers %s", launcher, worker)
	}
}

// schedulerOf is the schedulerName that a template sets. The default scheduler does not
// count, because Kubernetes fills it in.
func schedulerOf(template *corev1.PodTemplateSpec) string {
	if name := template.Spec.SchedulerName; name != corev1.DefaultSchedulerName {
		return name
	}
	return ""
}

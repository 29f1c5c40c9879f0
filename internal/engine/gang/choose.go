package gang

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// partialStart is what having no gang means for the user.
const partialStart = "pods are scheduled one by one, and some may hold their nodes while others wait"

// Choose says which backend a job gets, and why, in words for a condition. An
// error says what to install or to change; trying again does not help before
// that is done.
func Choose(j *job.Job, available Available) (Backend, string, error) {
	if j.Pods() <= 1 {
		return none{}, "No gang scheduling: the job has one pod", nil
	}
	if j.Gang.Scheduler != "" {
		backend, err := askedFor(j, &available)
		if err != nil {
			return nil, "", err
		}
		return backend, words(j, backend, "the runtime sets it"), nil
	}
	backend, why := discovered(j, &available)
	return backend, words(j, backend, why), nil
}

func words(j *job.Job, backend Backend, why string) string {
	text := fmt.Sprintf("Gang scheduling by %s: %s", backend.Name(), why)
	if backend.Name() == None {
		text = fmt.Sprintf("No gang scheduling: %s; %s", why, partialStart)
	}
	if queue := j.Gang.Queue; queue != "" && backend.Name() != job.Volcano {
		text += fmt.Sprintf("; the queue %s belongs to Volcano and is not used", queue)
	}
	return text
}

// askedFor is what the runtime names. A scheduler that the templates name is
// then taken for one that does it, under a name of the cluster's own.
func askedFor(j *job.Job, available *Available) (Backend, error) {
	asked := j.Gang.Scheduler
	if asked == None {
		return none{}, nil
	}
	for _, candidate := range available.candidates() {
		if candidate.name != asked {
			continue
		}
		if !candidate.there {
			return nil, fmt.Errorf("the runtime sets %s, but this cluster does not serve %s: %s, or change the runtime's podGroupPolicy",
				asked, candidate.api(), candidate.remedy)
		}
		scheduler, err := podScheduler(j)
		if err != nil {
			return nil, fmt.Errorf("the runtime sets %s, but %w: name the same in both templates, or none", asked, err)
		}
		return candidate.backend(scheduler), nil
	}
	return nil, fmt.Errorf("the runtime sets the gang scheduler %q; supported are %s, %s and %s", asked, job.Coscheduling, job.Volcano, job.Native)
}

// discovered is the best that the cluster has, as far as the job's own words
// leave it open.
func discovered(j *job.Job, available *Available) (Backend, string) {
	scheduler, err := podScheduler(j)
	if err != nil {
		return none{}, err.Error()
	}
	if scheduler != "" {
		return ofScheduler(available, scheduler)
	}
	// Only Volcano has such queues, so a job in one means Volcano.
	if queue := j.Gang.Queue; queue != "" && available.Volcano {
		return volcano{volcanoScheduler}, fmt.Sprintf("the queue %s belongs to Volcano", queue)
	}
	for _, candidate := range available.candidates() {
		if !candidate.there {
			continue
		}
		return candidate.backend(""), fmt.Sprintf("this cluster serves %s", candidate.api())
	}
	return none{}, "this cluster has none of scheduler-plugins, Volcano and the PodGroups of Kubernetes 1.36"
}

// ofScheduler is the backend that belongs to a scheduler which the pods name.
func ofScheduler(available *Available, scheduler string) (Backend, string) {
	for _, candidate := range available.candidates() {
		if candidate.scheduler != scheduler {
			continue
		}
		if !candidate.there {
			return none{}, fmt.Sprintf("the pods name the scheduler %s, but this cluster does not serve %s", scheduler, candidate.api())
		}
		return candidate.backend(scheduler), fmt.Sprintf("the pods name the scheduler %s", scheduler)
	}
	return none{}, fmt.Sprintf("the pods name the scheduler %s, which is not a known gang scheduler", scheduler)
}

// podScheduler is the scheduler that the templates name, empty if they leave it
// open. Where only one of them names one, the other goes with it.
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

// schedulerOf is the scheduler that a template has chosen. The default scheduler
// is what Kubernetes fills in, and therefore no choice.
func schedulerOf(template *corev1.PodTemplateSpec) string {
	if name := template.Spec.SchedulerName; name != corev1.DefaultSchedulerName {
		return name
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// waits has a job wait for something, in the conditions of its kind.
func waits(reason, message string) func(*Facts) {
	return func(facts *Facts) {
		facts.Conditions = []metav1.Condition{{Type: v2alpha1.ConditionGangScheduling, Status: "True", Reason: "Scheduled"}, {Type: v2alpha1.ConditionWorkersReady, Status: "False", Reason: reason, Message: message}}
		if facts.Kind == job.KindMPIJob {
			facts.Conditions = []metav1.Condition{{Type: "Created", Status: "True"}, {Type: "Pending", Status: "True", Reason: reason, Message: message}}
		}
	}
}

func waitsForQuota(name string) func(*Facts) {
	return func(facts *Facts) {
		facts.Previous.QuotaWait = &training.QuotaWait{Name: name, Since: ago(10), Message: "Pod job-worker-1 could not be created: exceeded quota"}
	}
}

func restarts(facts *Facts) {
	facts.Previous.Restart = &training.Restart{Count: 1, Reason: training.FailureWorker, Message: "Worker 1 was OOMKilled", DueTime: ago(-5)}
}

func TestStatus(t *testing.T) {
	suspended := func(facts *Facts) { facts.Previous.Suspended, facts.Job.Suspended = true, true }
	table(t, status, pending, map[string]tableCase{
		"a job that says nothing":    {},
		"a job that waits":           {change: waits("Waiting", "1 of 3 pods placed"), want: []string{"note: The job is waiting"}},
		"a runtime that is gone":     {change: waits("RuntimeNotFound", "gone"), want: []string{"certain: The operator cannot start the job: RuntimeNotFound"}, fix: "odh runtime list -n team"},
		"no gang scheduler":          {change: waits("NoGangScheduler", "none"), want: []string{"certain: The operator cannot start the job: NoGangScheduler"}, fix: "podGroupPolicy"},
		"no JobSet":                  {change: waits("JobSetNotInstalled", "none"), want: []string{"certain: The operator cannot start the job: JobSetNotInstalled"}, fix: "install the JobSet CRD"},
		"a job that waits for quota": {change: all(waits("WaitingForQuota", "x"), waitsForQuota("team")), want: []string{"certain: The job is waiting for quota"}, fix: "kubectl describe resourcequota -n team"},
		"a job that is restarted":    {change: all(waits("Restarting", "x"), restarts), want: []string{"likely: The job failed and is restarted (restart 1): WorkerFailed"}, fix: "--all"},
		"a restart without a runtime": {change: all(waits("RuntimeNotFound", "gone"), restarts), want: []string{
			"likely: The job failed and is restarted (restart 1): WorkerFailed", "certain: The operator cannot start the job: RuntimeNotFound"}},
		"a job that was restarted": {change: all(restarts, func(facts *Facts) { facts.Previous.Phase = training.PhaseRunning })},
		"an old Kubernetes":        {change: waits("KubernetesTooOld", "1.31"), want: []string{"certain: The operator cannot start the job: KubernetesTooOld"}, fix: "upgrade Kubernetes"},
		"a name that is taken":     {change: waits("NameTaken", "taken"), want: []string{"certain: The operator cannot start the job: NameTaken"}, fix: "kubectl get all,controllerrevisions -n team"},
		"a runtime that is lost":   {change: waits("RuntimeSnapshotLost", "lost"), want: []string{"certain: The operator cannot start the job: RuntimeSnapshotLost"}, fix: "kubectl get controllerrevisions,resourcequotas -n team"},
		"a job that is suspended":  {change: suspended, want: []string{"certain: The job is suspended"}, fix: `"suspend":false`},
		"a job in a queue": {change: func(facts *Facts) {
			suspended(facts)
			facts.Job.Queue, facts.Previous.Queued = "queue", true
		}},
		"a job that nobody has looked at":       {change: func(facts *Facts) { facts.Previous.Phase = "" }, want: []string{"certain: The operator has not processed the job"}, fix: "kubectl logs -n trireme-system"},
		"a job that is new":                     {change: func(facts *Facts) { facts.Previous.Phase, facts.Previous.Submitted = "", ago(5) }},
		"a job of mpi-operator":                 {change: func(facts *Facts) { facts.OfMPIOperator = true }, want: []string{"note: mpi-operator runs the job"}, fix: "kubectl describe mpijob"},
		"a job of another operator":             {change: func(facts *Facts) { facts.Previous.Phase, facts.Job.ManagedBy = "", "kueue" }, want: []string{"note: Another controller manages the job"}},
		"a job that succeeded":                  {change: succeeds},
		"a job whose command failed":            {change: fails(training.FailureTraining, "exit code 1"), want: []string{"cause: The job failed: TrainingError"}, fix: "logs job -n team"},
		"a job whose worker failed":             {change: fails(training.FailureWorker, "OOMKilled"), want: []string{"cause: The job failed: WorkerFailed"}, fix: "--all"},
		"a job without its image":               {change: failsBy(training.FailureWorker, "ErrImagePull"), want: []string{"cause: The job failed: WorkerFailed"}, fix: "Correct the image"},
		"a job without room":                    {change: fails(training.FailureGangSchedulingTimeout, "late"), want: []string{"cause: The job failed: GangSchedulingTimeout"}, fix: "kubectl describe nodes"},
		"a job over quota":                      {change: fails(training.FailureResourceQuota, "quota"), want: []string{"cause: The job failed: ResourceQuotaExceeded"}, fix: "kubectl describe resourcequota -n team"},
		"a job whose workers were not reached":  {change: fails(training.FailureSSHConnection, "ssh"), want: []string{"cause: The job failed: SSHConnectionFailed"}, fix: "kubectl get networkpolicy -n team"},
		"a job whose launcher failed":           {change: fails(training.FailureLauncher, "evicted"), want: []string{"cause: The job failed: LauncherFailed"}, fix: "logs job -n team"},
		"a job that did not start its programs": {change: fails(training.FailureMPIInitialization, "init"), want: []string{"cause: The job failed: MPIInitializationFailed"}, fix: "logs job"},
	})
}

func TestPods(t *testing.T) {
	statuses := func(reasons ...string) func(*Facts) {
		return func(facts *Facts) {
			for i, reason := range reasons {
				facts.Previous.WorkerPodStatuses = append(facts.Previous.WorkerPodStatuses, training.WorkerPodStatus{
					Index: int32(i), PodStatus: training.PodStatus{Name: "job-worker-" + string(rune('0'+i)), Reason: reason, Message: "words"},
				})
			}
		}
	}
	table(t, pods, pending, map[string]tableCase{
		"pods that are well":             {change: statuses("", "Completed")},
		"pods that another check is for": {change: statuses("Unschedulable", "ImagePullBackOff")},
		"pods that crash":                {change: statuses("CrashLoopBackOff", "CrashLoopBackOff"), want: []string{"likely: 2 pods: CrashLoopBackOff"}, fix: "kubectl describe pod job-worker-0 -n team"},
		"pods with different trouble":    {change: statuses("OOMKilled", "CreateContainerConfigError"), want: []string{"likely: 1 pod: OOMKilled", "likely: 1 pod: CreateContainerConfigError"}},
		"a launcher": {change: func(facts *Facts) {
			facts.Previous.LauncherPodStatus = &training.PodStatus{Name: "l", Reason: "OOMKilled"}
		}, want: []string{"likely: 1 pod: OOMKilled"}},
		"of a job that failed it is said": {change: func(facts *Facts) { statuses("OOMKilled")(facts); fails(training.FailureWorker, "oom")(facts) }},
	})
}

func waitsForImage(index int, image, reason string) func(*Facts) {
	return func(facts *Facts) {
		facts.Pods.Value[index].Status.ContainerStatuses = []corev1.ContainerStatus{{
			Image: image, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "words"}},
		}}
	}
}

func all(changes ...func(*Facts)) func(*Facts) {
	return func(facts *Facts) {
		for _, change := range changes {
			change(facts)
		}
	}
}

func pullSecret(name string, known Known[bool]) func(*Facts) {
	return func(facts *Facts) {
		for i := range facts.Pods.Value {
			facts.Pods.Value[i].Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
		}
		for _, role := range []*job.Role{&facts.Job.Launcher, &facts.Job.Worker} {
			role.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: name}}
		}
		facts.PullSecrets = map[string]Known[bool]{name: known}
	}
}

func TestImage(t *testing.T) {
	table(t, image, pending, map[string]tableCase{
		"pods that have their image":        {},
		"a pod that starts":                 {change: waitsForImage(1, "x:1", "ContainerCreating")},
		"an image that there is not":        {change: all(waitsForImage(1, "x:1", "ErrImagePull"), waitsForImage(2, "x:1", "ImagePullBackOff")), want: []string{"certain: 2 pods cannot pull image x:1"}, fix: "docker-registry"},
		"two images, sorted":                {change: all(waitsForImage(1, "y:1", "ErrImagePull"), waitsForImage(0, "x:1", "ErrImagePull")), want: []string{"certain: 1 pod cannot pull image x:1", "certain: 1 pod cannot pull image y:1"}},
		"a name that is none":               {change: waitsForImage(0, "X", "InvalidImageName"), want: []string{"certain: 1 pod cannot pull image X"}, fix: "registry/name:tag"},
		"an image that nobody may pull":     {change: waitsForImage(0, "x", "ErrImageNeverPull"), want: []string{"certain: 1 pod cannot pull image x"}, fix: "imagePullPolicy"},
		"a Secret that is there":            {change: pullSecret("login", Known[bool]{Value: true})},
		"a Secret that is missing":          {change: pullSecret("login", Known[bool]{}), want: []string{"possible: imagePullSecret login is missing"}, fix: "kubectl create secret docker-registry login -n team"},
		"a Secret that may not be read":     {change: pullSecret("login", Known[bool]{Unknown: "may not get secret"}), want: []string{"not known: imagePullSecret login"}},
		"an image behind a login":           {change: all(pullSecret("login", Known[bool]{Value: true}), waitsForImage(0, "x", "ErrImagePull")), want: []string{"certain: 1 pod cannot pull image x"}, fix: "kubectl get secret login"},
		"pods that may not be listed":       {change: func(facts *Facts) { facts.Pods = Known[[]corev1.Pod]{Unknown: "may not list pods"} }, want: []string{"not known: Images"}},
		"an image that came after all":      {change: all(runs, waitsForImage(1, "x", "ErrImagePull")), want: []string{"note: 1 pod cannot pull image x"}},
		"an init container without image":   {change: func(facts *Facts) { initWaits(facts) }, want: []string{"certain: 1 pod cannot pull image agent:1"}},
		"one pod counts once per its image": {change: all(waitsForImage(1, "x:1", "ErrImagePull"), func(facts *Facts) { initWaits(facts) }), want: []string{"certain: 1 pod cannot pull image agent:1"}},
	})
}

func initWaits(facts *Facts) {
	facts.Pods.Value[1].Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Image: "agent:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
	}}
}

// What no check explains is worth looking at, once it lasts.
func TestUnexplainedWaiting(t *testing.T) {
	for kind, model := range kinds() {
		for name, test := range map[string]struct {
			change func(*Facts)
			want   []string
		}{
			"a job that has just begun to wait": {func(facts *Facts) { facts.Previous.Submitted = ago(59) }, []string{"note: The job is waiting"}},
			"a job that waits":                  {func(*Facts) {}, []string{"likely: The job is waiting, and no check found the cause"}},
			"a job whose trouble is known":      {inCluster(), []string{"certain: Too few nodes fit the workers", "note: The job is waiting"}},
			"a job that runs":                   {runs, []string{}},
		} {
			findings := Diagnose(pending(model, waits("Waiting", "words"), test.change))
			if diff := cmp.Diff(test.want, inBrief(findings)); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", kind, name, diff)
			}
			wantHelp(t, findings)
		}
	}
}

package validation

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/config"
)

func show(name string, f *Findings) {
	fmt.Println("==", name)
	for _, e := range f.Errors {
		fmt.Println("  E", e)
	}
	for _, w := range f.Warnings {
		fmt.Println("  W", w)
	}
}

func TestProbe(t *testing.T) {
	show("ok mpijob", rules().CreateMPIJob(mpiJob(), anywhere()))
	show("ok trainjob", rules().CreateTrainJob(trainJob(), anywhere(made())))
	show("ok runtime", rules().Runtime(runtimeOf(), 0))
	zero := configured(func(c *config.Config) { c.Limits.MinWorkers = 0 })
	show("no worker min 0", zero.CreateMPIJob(mpiJob(noWorkers), anywhere()))
	show("no worker default", rules().CreateMPIJob(mpiJob(noWorkers), anywhere()))
	show("no worker ranks", configured(func(c *config.Config) { c.Limits.MinWorkers = 1 }).CreateMPIJob(mpiJob(noWorkers, launcherRunsRanks), anywhere()))
	show("ranks quota", rules().CreateMPIJob(mpiJob(workers(3), launcherRunsRanks), anywhere(func(in *Surroundings) {
		in.Quotas = []corev1.ResourceQuota{{Spec: corev1.ResourceQuotaSpec{Hard: list("pods", "2")}}}
	})))
	show("runtime prio", rules().CreateTrainJob(trainJob(), anywhere(made(func(r *v2alpha1.TrainingRuntimeSpec) { runtimeWorker(r).Spec.PriorityClassName = "nobodys" }), func(in *Surroundings) {
		in.HasPriorityClass = func(string) bool { return false }
	})))
	show("password", rules().CreateTrainJob(trainJob(func(j *v2alpha1.TrainJob) {
		j.Spec.Initializer = &v2alpha1.Initializer{Dataset: &v2alpha1.Source{StorageURI: "https://key:hunter2@bucket/x"}, Model: &v2alpha1.Source{StorageURI: "s3://key:pa%zz@bucket/x"}, Storage: &v2alpha1.InitializerStorage{ClaimName: "c"}}
	}), anywhere(made())))
	for _, uri := range []string{"hf://owner", "pvc://Claim_A/x", "s3://", "pvc:///x", "S3://b", "s3:bucket/path", "hf://owner/name", "s3://bucket", "s3://token@bucket/x"} {
		show(uri, rules().CreateTrainJob(trainJob(func(j *v2alpha1.TrainJob) {
			j.Spec.Initializer = &v2alpha1.Initializer{Dataset: &v2alpha1.Source{StorageURI: uri}, Storage: &v2alpha1.InitializerStorage{ClaimName: "c"}}
		}), anywhere(made())))
	}
	q := func(a, b string) *Findings {
		old, changed := mpiJob(), mpiJob()
		workerOf(old).Resources.Limits["memory"] = resource.MustParse(a)
		workerOf(changed).Resources.Limits["memory"] = resource.MustParse(b)
		return rules().UpdateMPIJob(old, changed)
	}
	show("1Gi=1024Mi", q("1Gi", "1024Mi"))
	show("1Gi=1073741824", q("1Gi", "1073741824"))
	show("1e9=1G", q("1e9", "1G"))
	old, changed := mpiJob(), mpiJob()
	workerPod(old).Containers, workerPod(changed).Containers = nil, []corev1.Container{}
	show("nil containers", rules().UpdateMPIJob(old, changed))
	old, changed = mpiJob(), mpiJob()
	old.Spec.MPIReplicaSpecs, changed.Spec.MPIReplicaSpecs = nil, map[v2beta1.MPIReplicaType]*v2beta1.ReplicaSpec{}
	show("nil specs", rules().UpdateMPIJob(old, changed))
	show("ssh dir /etc/mpi", rules().CreateMPIJob(mpiJob(runsSSHD, func(j *v2beta1.MPIJob) { j.Spec.SSHAuthMountPath = "/etc/mpi" }), anywhere()))
	show("gpu 10P", rules().CreateMPIJob(mpiJob(func(j *v2beta1.MPIJob) { workerOf(j).Resources = limitsOf("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "10P") }), anywhere()))
	show("initializer container min", rules().CreateMPIJob(mpiJob(func(j *v2beta1.MPIJob) {
		workerOf(j).Resources = limitsOf("cpu", "100m", "memory", "1Gi")
		workerPod(j).InitContainers = []corev1.Container{{Name: "i", Image: "a", Resources: limitsOf("cpu", "4")}}
	}), anywhere()))
}

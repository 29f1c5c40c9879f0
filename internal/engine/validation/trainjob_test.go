// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

func TestInitializer(t *testing.T) {
	const at = "spec.initializer"
	quantity := func(text string) *resource.Quantity { return new(resource.MustParse(text)) }
	data := &v2alpha1.Source{StorageURI: "s3://bucket/data"}
	claim := &v2alpha1.InitializerStorage{ClaimName: "data"}
	mustBe := func(field, name string) string {
		return field + `: Invalid value: "` + name + `": ` + utilvalidation.IsDNS1123Subdomain(name)[0]
	}
	const eitherOr = "must have either claimName or size"
	on := func(storage v2alpha1.InitializerStorage) v2alpha1.Initializer {
		return v2alpha1.Initializer{Dataset: data, Storage: &storage}
	}
	with := func(secret string) v2alpha1.Initializer {
		return v2alpha1.Initializer{Dataset: &v2alpha1.Source{StorageURI: "hf://owner/name", SecretRef: &v2alpha1.SecretRef{Name: secret}}, Storage: claim}
	}
	tests := map[string]struct {
		initializer v2alpha1.Initializer
		want        []string
	}{
		"nothing":                    {},
		"a place for nothing":        {initializer: v2alpha1.Initializer{Storage: claim}, want: []string{at + ".storage: Forbidden: is only for a dataset or a model; set one of them, or mount a PVC with trainer.volumes"}},
		"a dataset on a claim":       {initializer: v2alpha1.Initializer{Dataset: data, Storage: claim}},
		"a model on a claim":         {initializer: v2alpha1.Initializer{Model: data, Storage: claim}},
		"a dataset on a new claim":   {initializer: on(v2alpha1.InitializerStorage{Size: quantity("1Gi")})},
		"a new claim of a class":     {initializer: on(v2alpha1.InitializerStorage{Size: quantity("1Gi"), StorageClassName: new("fast")})},
		"a model without a place":    {initializer: v2alpha1.Initializer{Model: data}, want: []string{at + ".storage: Required value: set claimName to an existing PVC for the data, or size to create one"}},
		"a place that is nowhere":    {initializer: on(v2alpha1.InitializerStorage{}), want: []string{at + `.storage: Invalid value: "": ` + eitherOr}},
		"a class and nothing of it":  {initializer: on(v2alpha1.InitializerStorage{StorageClassName: new("fast")}), want: []string{at + `.storage: Invalid value: "": ` + eitherOr}},
		"a claim of a size":          {initializer: on(v2alpha1.InitializerStorage{ClaimName: "data", Size: quantity("1Gi")}), want: []string{at + `.storage: Invalid value: "data": ` + eitherOr}},
		"a claim of a class":         {initializer: on(v2alpha1.InitializerStorage{ClaimName: "data", StorageClassName: new("")}), want: []string{at + ".storage.storageClassName: Forbidden: is only for a new PVC; claimName is an existing one"}},
		"a claim that cannot be":     {initializer: on(v2alpha1.InitializerStorage{ClaimName: "My_Data"}), want: []string{mustBe(at+".storage.claimName", "My_Data")}},
		"a new claim below nothing":  {initializer: on(v2alpha1.InitializerStorage{Size: quantity("-1Gi")}), want: []string{at + `.storage.size: Invalid value: "-1Gi": must be greater than 0 and at most 1Ei`}},
		"a new claim beyond all":     {initializer: on(v2alpha1.InitializerStorage{Size: quantity("2Ei")}), want: []string{at + `.storage.size: Invalid value: "2Ei": must be greater than 0 and at most 1Ei`}},
		"a secret without a name":    {initializer: with(""), want: []string{mustBe(at+".dataset.secretRef.name", "")}},
		"a secret that is all right": {initializer: with("hf.token")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Initializer = &tc.initializer })
			wantFindings(t, rules().CreateTrainJob(job, anywhere(withRuntime())), tc.want, nil)
		})
	}
}

func TestSources(t *testing.T) {
	const (
		form        = "must be s3://bucket/path, hf://owner/name, hf://owner/name@revision or pvc://claim/path"
		credentials = "Forbidden: must not contain credentials or parameters; put them into a Secret and set secretRef"
	)
	invalid := func(uri string) string { return `Invalid value: "` + uri + `": ` + form }
	tests := map[string]struct{ want string }{
		"s3://bucket/path":              {},
		"s3://bucket":                   {},
		"hf://owner/name":               {},
		"hf://owner/name@v1.0":          {},
		"hf://datasets/owner/name@main": {},
		"hf://owner/name@v1?x=y":        {want: credentials},
		"pvc://claim/path/to/it":        {},
		"":                              {want: invalid("")},
		"bucket/path":                   {want: invalid("bucket/path")},
		"s3:/bucket/path":               {want: invalid("s3:/bucket/path")},
		"s3:bucket":                     {want: invalid("s3:bucket")},
		"s3://":                         {want: invalid("s3://")},
		"pvc:///path":                   {want: invalid("pvc:///path")},
		"https://server/path":           {want: invalid("https://server/path")},
		"file:///etc/passwd":            {want: invalid("file:///etc/passwd")},
		"s3://bucket/%zz":               {want: invalid("s3://bucket/%zz")},
		"s3://key:secret@bucket/path":   {want: credentials},
		"hf://token@owner/name":         {want: credentials},
		"https://key:secret@server/":    {want: credentials},
		"s3://bucket/path?token=secret": {want: credentials},
		"s3://key:secr%zzet@bucket/key": {want: credentials},
	}
	for uri, tc := range tests {
		t.Run(uri, func(t *testing.T) {
			for field, put := range map[string]func(*v2alpha1.Initializer, *v2alpha1.Source){
				"spec.initializer.dataset.storageUri": func(initializer *v2alpha1.Initializer, source *v2alpha1.Source) { initializer.Dataset = source },
				"spec.initializer.model.storageUri":   func(initializer *v2alpha1.Initializer, source *v2alpha1.Source) { initializer.Model = source },
			} {
				job := trainJob(func(trainJob *v2alpha1.TrainJob) {
					trainJob.Spec.Initializer = &v2alpha1.Initializer{Storage: &v2alpha1.InitializerStorage{ClaimName: "data"}}
					put(trainJob.Spec.Initializer, &v2alpha1.Source{StorageURI: uri})
				})
				var want []string
				if tc.want != "" {
					want = []string{field + ": " + tc.want}
				}
				wantFindings(t, rules().CreateTrainJob(job, anywhere(withRuntime())), want, nil)
			}
		})
	}
}

// A job's mount goes into launcher and workers, so both must have the volume and
// neither anything else at that place.
func TestVolumesOfJobAndRuntime(t *testing.T) {
	const at = "spec.trainer"
	type roles = func(*v2alpha1.TrainingRuntimeSpec)
	volume := func(names ...string) (volumes []corev1.Volume) {
		for _, name := range names {
			volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		}
		return volumes
	}
	mounts := func(pairs ...string) (mounts []corev1.VolumeMount) {
		for i := 0; i < len(pairs); i += 2 {
			mounts = append(mounts, corev1.VolumeMount{Name: pairs[i], MountPath: pairs[i+1]})
		}
		return mounts
	}
	notFound := func(index, name string) string {
		return at + ".volumeMounts[" + index + `].name: Not found: "` + name + `"`
	}
	taken := func(directory, by string) string {
		return at + ".volumeMounts[0].mountPath: Forbidden: " + directory + " is used by " + by + "; use another mountPath"
	}
	tests := map[string]struct {
		runtime     roles
		volumes     []corev1.Volume
		mounts      []corev1.VolumeMount
		initializer *v2alpha1.Initializer
		want        []string
	}{
		"a volume of the job's": {volumes: volume("data"), mounts: mounts("data", "/data", "data", "/again")},
		"a volume of both roles": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtimeLauncher(runtime).Spec.Volumes = volume("logs", "shared")
				runtimeWorker(runtime).Spec.Volumes = volume("shared", "scratch")
			},
			mounts: mounts("shared", "/shared"),
		},
		"volumes of one role each": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtimeLauncher(runtime).Spec.Volumes = volume("logs")
				runtimeWorker(runtime).Spec.Volumes = volume("scratch")
			},
			mounts: mounts("logs", "/logs", "scratch", "/scratch"),
			want:   []string{notFound("0", "logs"), notFound("1", "scratch")},
		},
		"a volume of nobody's": {mounts: mounts("data", "/data"), want: []string{notFound("0", "data")}},
		"a volume that both roles have, and the job too": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtimeLauncher(runtime).Spec.Volumes = volume("shared")
				runtimeWorker(runtime).Spec.Volumes = volume("shared")
			},
			volumes: volume("data", "shared"),
			want: []string{
				at + `.volumes[1].name: Invalid value: "shared": the launcher of runtime openmpi already has a volume of this name`,
				at + `.volumes[1].name: Invalid value: "shared": the worker of runtime openmpi already has a volume of this name`,
			},
		},
		"where the launcher has something": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtimeLauncher(runtime).Spec.Containers[0].VolumeMounts = mounts("logs", "/data/")
			},
			volumes: volume("data"), mounts: mounts("data", "/data"), want: []string{taken("/data", "the runtime")},
		},
		"where a container beside has something": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				worker := &runtimeWorker(runtime).Spec
				worker.Containers = append(worker.Containers, corev1.Container{Name: "beside", Image: "a", VolumeMounts: mounts("logs", "/data")})
			},
			volumes: volume("data"), mounts: mounts("data", "/data"),
		},
		"where the hostfile is":        {volumes: volume("data"), mounts: mounts("data", "/etc/mpi/"), want: []string{taken("/etc/mpi", "the operator, for files that MPI needs")}},
		"where the initializer writes": {volumes: volume("data"), mounts: mounts("data", "/workspace"), initializer: &v2alpha1.Initializer{}, want: []string{taken("/workspace", "the initializer")}},
		"where the initializer writes, and the runtime has something": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtimeWorker(runtime).Spec.Volumes = volume("scratch")
				runtimeWorker(runtime).Spec.Containers[0].VolumeMounts = mounts("scratch", "/workspace/")
			},
			initializer: &v2alpha1.Initializer{},
			want:        []string{"spec.initializer: Forbidden: the worker of runtime openmpi mounts a volume at /workspace, where the initializer writes its data"},
		},
		"a volume that cannot be": {volumes: volume("a.b"), want: []string{at + `.volumes[0].name: Invalid value: "a.b": must not contain dots`}},
		"where it would write":    {volumes: volume("data"), mounts: mounts("data", "/workspace")},
		"twice at one place":      {volumes: volume("data"), mounts: mounts("data", "/data", "data", "//data/."), want: []string{at + `.volumeMounts[1].mountPath: Duplicate value: "//data/."`}},
		"nowhere":                 {volumes: volume("data"), mounts: mounts("data", ""), want: []string{at + ".volumeMounts[0].mountPath: Required value: must be a directory of the container"}},
		"a role without containers": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) { runtimeLauncher(runtime).Spec.Containers = nil },
			volumes: volume("data"), mounts: mounts("data", "/data"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := trainJob(func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.Volumes, trainJob.Spec.Trainer.VolumeMounts, trainJob.Spec.Initializer = tc.volumes, tc.mounts, tc.initializer
			})
			in := anywhere(withRuntime())
			if tc.runtime != nil {
				tc.runtime(in.Runtime)
			}
			wantFindings(t, rules().CreateTrainJob(job, in), tc.want, nil)
		})
	}
}

func TestTrainJobAndItsRuntime(t *testing.T) {
	tests := map[string]struct {
		job                func(*v2alpha1.TrainJob)
		runtime            func(*v2alpha1.TrainingRuntimeSpec)
		in                 func(*ClusterFacts)
		want, wantWarnings []string
	}{
		"no runtime, and what can be said without one": {
			job: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.NumNodes = new(int32(0))
				trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: new(limitsOf("cpu", "-1"))}
			},
			in: func(in *ClusterFacts) { in.Runtime = nil },
			want: []string{
				`spec.runtimeRef.name: Invalid value: "openmpi": Runtime openmpi not found in namespace`,
				"spec.trainer.numNodes: Invalid value: 0: numNodes must be between 1 and 64",
				`spec.launcher.resources.limits[cpu]: Invalid value: "-1": must not be negative`,
			},
		},
		"nobody has a command": {
			job:          func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.Command = nil },
			wantWarnings: []string{"spec.trainer.command: neither the job nor its runtime has a command, so the entrypoint of the image must start MPI"},
		},
		"the runtime has a command": {
			job: func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.Command = nil },
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtimeLauncher(runtime).Spec.Containers[0].Args = []string{"run"}
			},
		},
		"as many nodes and GPUs as the runtime allows": {
			job: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.ResourcesPerNode = new(limitsOf("cpu", "1", "memory", "1Gi", "amd.com/gpu", "1"))
			},
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtime.Constraints = &v2alpha1.Constraints{MaxNodes: new(int32(2)), MaxGPUsPerNode: new(int32(1))}
			},
		},
		"more GPUs than the runtime allows, of all containers": {
			job: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.ResourcesPerNode = new(limitsOf("cpu", "1", "memory", "1Gi", "amd.com/gpu", "1"))
				trainJob.Spec.Trainer.SlotsPerWorker = new(int32(2))
			},
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtime.Constraints = &v2alpha1.Constraints{MaxGPUsPerNode: new(int32(1))}
				worker := &runtimeWorker(runtime).Spec
				worker.Containers = append(worker.Containers, container("beside", limitsOf("amd.com/gpu", "1")))
			},
			want: []string{`spec.trainer.resourcesPerNode: Invalid value: "2": a node must have at most 1 GPUs with runtime openmpi`},
		},
		"the runtime's own nodes are too many for it": {
			job: func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.NumNodes = nil },
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) {
				runtime.Template.Spec.ReplicatedJobs[1].Replicas = new(int32(3))
				runtime.Constraints = &v2alpha1.Constraints{MaxNodes: new(int32(2))}
			},
			want: []string{"spec.trainer.numNodes: Invalid value: 3: numNodes must be at most 2 with runtime openmpi"},
		},
		"a priority class of the runtime's template that is not there": {
			runtime: func(runtime *v2alpha1.TrainingRuntimeSpec) { runtimeWorker(runtime).Spec.PriorityClassName = "none" },
			in:      func(in *ClusterFacts) { in.HasPriorityClass = func(string) bool { return false } },
			want:    []string{`spec.runtimeRef.name: Invalid value: "none": PriorityClass does not exist; list them with kubectl get priorityclasses`},
		},
		"resources of one worker and of the job's launcher": {
			job: func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: list("cpu", "2"), Limits: list("cpu", "1")}
				trainJob.Spec.Launcher = &v2alpha1.Launcher{Resources: &corev1.ResourceRequirements{Requests: list("nvidia.com/gpu", "1")}}
			},
			want: []string{
				`spec.trainer.resourcesPerNode.limits[cpu]: Invalid value: "1": must be at least the request, 2`,
				`spec.launcher.resources.requests[nvidia.com/gpu]: Invalid value: "1": nvidia.com/gpu cannot be overcommitted: set a limit that equals the request, or only a limit`,
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job, in := trainJob(), anywhere(withRuntime())
			if tc.job != nil {
				tc.job(job)
			}
			if tc.runtime != nil {
				tc.runtime(in.Runtime)
			}
			if tc.in != nil {
				tc.in(in)
			}
			wantFindings(t, rules().CreateTrainJob(job, in), tc.want, tc.wantWarnings)
		})
	}
}

// resourcesPerNode replaces all resources of the runtime, GPUs too.
func TestDroppedGPUs(t *testing.T) {
	withGPUs := withRuntime(func(runtime *v2alpha1.TrainingRuntimeSpec) {
		runtimeWorker(runtime).Spec.Containers[0].Resources = limitsOf("cpu", "4", "memory", "1Gi", "nvidia.com/gpu", "2")
	})
	const dropped = "spec.trainer.resourcesPerNode: replaces all resources of runtime mpi, so workers do not get its 2 nvidia.com/gpu; add nvidia.com/gpu, or set it to 0"
	tests := map[string]struct {
		own  *corev1.ResourceRequirements
		want []string
	}{
		"the runtime's resources": {},
		"CPUs only":               {new(limitsOf("cpu", "8", "memory", "1Gi")), []string{dropped}},
		"fewer GPUs":              {new(limitsOf("cpu", "8", "memory", "1Gi", "nvidia.com/gpu", "1")), nil},
		"no GPUs, on purpose":     {new(limitsOf("cpu", "8", "memory", "1Gi", "nvidia.com/gpu", "0")), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := trainJob(func(trainJob *v2alpha1.TrainJob) {
				trainJob.Spec.RuntimeRef.Name, trainJob.Spec.Trainer.ResourcesPerNode = "mpi", tc.own
				trainJob.Spec.Trainer.SlotsPerWorker = new(int32(1))
				if tc.own == nil {
					trainJob.Spec.Trainer.SlotsPerWorker = new(int32(2))
				}
			})
			wantFindings(t, rules().CreateTrainJob(job, anywhere(withGPUs)), nil, tc.want)
		})
	}
}

// MultiKueue runs no TrainJobs of this group.
func TestTrainJobIsManagedHere(t *testing.T) {
	for value, want := range map[string][]string{
		"kubeflow.org/trainjob-controller": nil,
		"kueue.x-k8s.io/multikueue":        {`spec.managedBy: Unsupported value: "kueue.x-k8s.io/multikueue": supported values: "kubeflow.org/trainjob-controller"`},
	} {
		t.Run(value, func(t *testing.T) {
			job := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.ManagedBy = &value })
			wantFindings(t, rules().CreateTrainJob(job, anywhere(withRuntime())), want, nil)
		})
	}
}

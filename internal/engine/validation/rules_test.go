// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// The API server cuts warnings at 256 characters, and says so in a warning of
// its own. Characters are not bytes.
func TestWarningsAreCut(t *testing.T) {
	const prefix = "spec: "
	tests := map[string]struct{ text, want string }{
		"short":                     {text: "short", want: prefix + "short"},
		"as long as may be":         {text: strings.Repeat("x", 250), want: prefix + strings.Repeat("x", 250)},
		"one too long":              {text: strings.Repeat("x", 251), want: prefix + strings.Repeat("x", 249) + "…"},
		"far too long":              {text: strings.Repeat("x", 10_000), want: prefix + strings.Repeat("x", 249) + "…"},
		"as long as may be, and ä":  {text: strings.Repeat("ä", 250), want: prefix + strings.Repeat("ä", 250)},
		"one too long, and ä":       {text: strings.Repeat("ä", 251), want: prefix + strings.Repeat("ä", 249) + "…"},
		"percent signs are no verb": {text: "100% %s", want: prefix + "100% %s"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var findings Findings
			findings.warn(field.NewPath("spec"), "%s", tc.text)
			if diff := cmp.Diff([]string{tc.want}, findings.WarningTexts()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if length := utf8.RuneCountInString(findings.WarningTexts()[0]); length > 256 {
				t.Errorf("%d characters", length)
			}
		})
	}
}

func TestDeprecationOfMPIJob(t *testing.T) {
	tests := map[config.Deprecation]struct{ want, wantWarnings []string }{
		config.DeprecationOff: {},
		config.DeprecationWarn: {wantWarnings: []string{
			"apiVersion: MPIJob is deprecated: use a TrainJob of kubeflow.org/v2alpha1 instead",
		}},
		config.DeprecationRefuse: {want: []string{
			"apiVersion: Forbidden: this cluster does not accept new MPIJobs: use a TrainJob of kubeflow.org/v2alpha1 instead",
		}},
	}
	for deprecation, tc := range tests {
		t.Run(string(deprecation), func(t *testing.T) {
			rules := configured(func(configuration *config.Config) { configuration.Admission.MPIJobDeprecation = deprecation })
			wantFindings(t, rules.CreateMPIJob(mpiJob(), anywhere()), tc.want, tc.wantWarnings)
			wantFindings(t, rules.CreateTrainJob(trainJob(), anywhere(withRuntime())), nil, nil)
		})
	}
}

func TestWhoIsWarnedOfPodSecurity(t *testing.T) {
	tests := map[string]struct {
		podSecurity config.PodSecurity
		openShift   bool
		want        bool
	}{
		"by itself, on Kubernetes":  {podSecurity: config.PodSecurityAuto},
		"by itself, on OpenShift":   {podSecurity: config.PodSecurityAuto, openShift: true, want: true},
		"told to warn":              {podSecurity: config.PodSecurityWarn, want: true},
		"told to warn, OpenShift":   {podSecurity: config.PodSecurityWarn, openShift: true, want: true},
		"told to refuse":            {podSecurity: config.PodSecurityRefuse},
		"told to refuse, OpenShift": {podSecurity: config.PodSecurityRefuse, openShift: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			configuration := config.Default()
			configuration.Admission.PodSecurity = tc.podSecurity
			if got := NewRules(configuration, tc.openShift).PodSecurityWarns; got != tc.want {
				t.Errorf("violations are warnings: %t, want %t", got, tc.want)
			}
		})
	}
}

// What was configured is what holds, and what is said. The default limits are
// tried on a real API server.
func TestConfiguredLimitsOfMPIJob(t *testing.T) {
	type limits = *config.Limits
	tests := map[string]struct {
		limits func(limits)
		change func(*v2beta1.MPIJob)
		in     func(*ClusterFacts)
		want   []string
	}{
		"fewer workers": {
			limits: func(limits limits) { limits.MaxWorkers = 3 }, change: workers(4),
			want: []string{"spec.mpiReplicaSpecs.Worker.replicas: Invalid value: 4: Worker replicas must be between 2 and 3"},
		},
		"as many workers as that": {limits: func(limits limits) { limits.MaxWorkers = 3 }, change: workers(3)},
		"a single worker":         {limits: func(limits limits) { limits.MinWorkers = 1 }, change: workers(1)},
		"one less than a single worker": {
			limits: func(limits limits) { limits.MinWorkers = 1 }, change: workers(0),
			want: []string{
				"spec.mpiReplicaSpecs.Worker.replicas: Invalid value: 0: Worker replicas must be between 1 and 100",
			},
		},
		"workers that are none, where there may be none: then leave them out": {
			limits: func(limits limits) { limits.MinWorkers = 0 }, change: workers(0),
			want: []string{"spec.mpiReplicaSpecs.Worker.replicas: Invalid value: 0: Worker replicas must be between 1 and 100"},
		},
		"more slots": {
			limits: func(limits limits) { limits.MaxSlots.MPIJob = 32 },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(33)) },
			want:   []string{"spec.slotsPerWorker: Invalid value: 33: slotsPerWorker must be between 1 and 32"},
		},
		"as many slots as that": {
			limits: func(limits limits) { limits.MaxSlots.MPIJob = 32 },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(32)) },
		},
		"TrainJob's slots are another limit": {
			limits: func(limits limits) { limits.MaxSlots.TrainJob = 1 },
			change: func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.SlotsPerWorker = new(int32(8)) },
		},
		"no GPUs": {
			limits: func(limits limits) { limits.MaxGPUs = 0 },
			change: func(mpiJob *v2beta1.MPIJob) {
				workerOf(mpiJob).Resources = limitsOf("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "1")
			},
			want: []string{`spec.mpiReplicaSpecs.Worker.template.spec.containers: Invalid value: "1": a worker must have at most 0 GPUs`},
		},
		"smaller workers": {
			limits: func(limits limits) {
				limits.MinCPU, limits.MinMemory = resource.MustParse("250m"), resource.MustParse("64Mi")
			},
			change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Resources = limitsOf("cpu", "249m", "memory", "63Mi") },
			want: []string{
				workerContainer + `.resources.requests[cpu]: Invalid value: "249m": a worker must request at least 250m cpu`,
				workerContainer + `.resources.requests[memory]: Invalid value: "63Mi": a worker must request at least 64Mi memory`,
			},
		},
		"workers of any size": {
			limits: func(limits limits) { limits.MinCPU, limits.MinMemory = resource.Quantity{}, resource.Quantity{} },
			change: func(mpiJob *v2beta1.MPIJob) { workerOf(mpiJob).Resources = limitsOf("cpu", "1m", "memory", "1") },
		},
		"two variables": {
			limits: func(limits limits) { limits.MaxEnv = 2 },
			change: func(mpiJob *v2beta1.MPIJob) { launcherOf(mpiJob).Env = variables("A", "", "B", "", "C D", "") },
			want:   []string{launcherContainer + ".env: Too many: 3: must have at most 2 items"},
		},
		"smaller objects": {
			limits: func(limits limits) { limits.MaxBytes = 1000 }, in: func(in *ClusterFacts) { in.Bytes = 1001 },
			want: []string{`spec: Invalid value: "1001 bytes": the object must have at most 1000 bytes; put large data into a ConfigMap or a volume`},
		},
		"objects as small as that": {
			limits: func(limits limits) { limits.MaxBytes = 1000 }, in: func(in *ClusterFacts) { in.Bytes = 1000 },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rules := configured(func(configuration *config.Config) { tc.limits(&configuration.Limits) })
			job, in := mpiJob(), anywhere()
			if tc.change != nil {
				tc.change(job)
			}
			if tc.in != nil {
				tc.in(in)
			}
			wantFindings(t, rules.CreateMPIJob(job, in), tc.want, nil)
		})
	}
}

func TestConfiguredLimitsOfTrainJobAndRuntimes(t *testing.T) {
	rules := configured(func(configuration *config.Config) {
		limits := &configuration.Limits
		limits.MaxNodes, limits.MaxSlots, limits.ManyGPUs = 8, config.MaxSlots{TrainJob: 4, MPIJob: 1}, 2
		limits.MinScheduleTimeoutSeconds, limits.MaxScheduleTimeoutSeconds = 10, 20
		limits.MaxEnv, limits.MaxBytes = 1, 1000
	})
	t.Run("a job that asks for more of everything", func(t *testing.T) {
		job := trainJob(func(trainJob *v2alpha1.TrainJob) {
			trainer := &trainJob.Spec.Trainer
			trainer.NumNodes, trainer.SlotsPerWorker, trainer.Env = new(int32(9)), new(int32(5)), variables("A", "", "B", "")
			trainer.ResourcesPerNode = new(limitsOf("cpu", "1", "memory", "1Gi", "nvidia.com/gpu", "5"))
		})
		wantFindings(t, rules.CreateTrainJob(job, anywhere(withRuntime(), func(in *ClusterFacts) { in.Bytes = 1000 })), []string{
			"spec.trainer.numNodes: Invalid value: 9: numNodes must be between 1 and 8",
			"spec.trainer.slotsPerWorker: Invalid value: 5: slotsPerWorker must be between 1 and 4",
			"spec.trainer.env: Too many: 2: must have at most 1 item",
		}, []string{"spec.trainer.resourcesPerNode: 5 GPUs per node; most machines have at most 2"})
	})
	t.Run("a job as large as may be", func(t *testing.T) {
		job := trainJob(func(trainJob *v2alpha1.TrainJob) {
			trainJob.Spec.Trainer.NumNodes, trainJob.Spec.Trainer.SlotsPerWorker = new(int32(8)), new(int32(4))
		})
		wantFindings(t, rules.CreateTrainJob(job, anywhere(withRuntime())), nil, nil)
	})
	t.Run("a job that asks for nothing, of a runtime from before the limits", func(t *testing.T) {
		job := trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.Trainer.NumNodes = nil })
		in := anywhere(withRuntime(func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.Template.Spec.ReplicatedJobs[1].Replicas = new(int32(9))
			runtime.MLPolicy.SlotsPerWorker = new(int32(5))
		}))
		wantFindings(t, rules.CreateTrainJob(job, in), []string{
			"spec.trainer.numNodes: Invalid value: 9: numNodes must be between 1 and 8",
			"spec.trainer.slotsPerWorker: Invalid value: 5: slotsPerWorker must be between 1 and 4",
		}, nil)
	})
	t.Run("a runtime that asks for more of everything", func(t *testing.T) {
		runtime := runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.MLPolicy.NumNodes, runtime.MLPolicy.SlotsPerWorker = new(int32(9)), new(int32(5))
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Volcano: &v2alpha1.QueuedGangPolicy{GangPolicy: v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(21))}}}
			runtime.Template.Spec.ReplicatedJobs[1].Replicas = new(int32(9))
			runtimeWorker(runtime).Spec.Containers[0].Resources = limitsOf("amd.com/gpu", "3")
		})
		wantFindings(t, rules.Runtime(runtime, 1000), []string{
			"spec.mlPolicy.numNodes: Invalid value: 9: numNodes must be between 1 and 8",
			"spec.mlPolicy.slotsPerWorker: Invalid value: 5: slotsPerWorker must be between 1 and 4",
			"spec.podGroupPolicy.volcano.scheduleTimeoutSeconds: Invalid value: 21: scheduleTimeoutSeconds must be at most 20",
			replicatedJobs + "[1].replicas: Invalid value: 9: replicas must be between 1 and 8",
		}, []string{replicatedJobs + "[1].template: 3 GPUs per node; most machines have at most 2"})
	})
	// Judging what is too large might be what it was made so large for.
	t.Run("objects that are too large are not looked into", func(t *testing.T) {
		tooLarge := []string{`spec: Invalid value: "1001 bytes": the object must have at most 1000 bytes; put large data into a ConfigMap or a volume`}
		in := &ClusterFacts{Bytes: 1001}
		wantFindings(t, rules.CreateTrainJob(&v2alpha1.TrainJob{}, in), tooLarge, nil)
		wantFindings(t, rules.CreateMPIJob(&v2beta1.MPIJob{}, in), tooLarge, nil)
		wantFindings(t, rules.Runtime(&v2alpha1.TrainingRuntimeSpec{}, 1001), tooLarge, nil)
	})
	t.Run("an impatient runtime", func(t *testing.T) {
		runtime := runtimeOf(func(runtime *v2alpha1.TrainingRuntimeSpec) {
			runtime.PodGroupPolicy = &v2alpha1.PodGroupPolicy{Coscheduling: &v2alpha1.GangPolicy{ScheduleTimeoutSeconds: new(int32(9))}}
		})
		wantFindings(t, rules.Runtime(runtime, 1000), []string{
			"spec.podGroupPolicy.coscheduling.scheduleTimeoutSeconds: Invalid value: 9: scheduleTimeoutSeconds must be at least 10",
		}, nil)
	})
}

// The configured defaults reach the job that quotas are asked about.
func TestConfiguredDefaultsCount(t *testing.T) {
	rules := configured(func(configuration *config.Config) { configuration.Defaults.LauncherCPU = resource.MustParse("7") })
	in := anywhere(withRuntime(), func(in *ClusterFacts) {
		in.Quotas = []corev1.ResourceQuota{{Spec: corev1.ResourceQuotaSpec{Hard: list("requests.cpu", "8")}}}
	})
	got := rules.CreateTrainJob(trainJob(), in)
	want := "Requested 9 CPUs (2 workers × 1 CPU + launcher 7 CPUs), but namespace quota is 8 CPUs."
	if len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Error(), want) {
		t.Errorf("no fault that says %q: %v", want, got.Errors)
	}
}

// Each role is asked about the sidecar, by annotation and by label.
func TestIstioOnTemplates(t *testing.T) {
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Spec.MPIReplicaSpecs["Launcher"].Template.Annotations = map[string]string{training.IstioInject: "maybe"}
		mpiJob.Spec.MPIReplicaSpecs["Launcher"].Template.Labels = map[string]string{training.IstioInject: "false"}
		mpiJob.Spec.MPIReplicaSpecs["Worker"].Template.Labels = map[string]string{training.IstioInject: "true"}
	})
	wantFindings(t, rules().CreateMPIJob(job, anywhere()),
		[]string{launcherTemplate + `.metadata.annotations[sidecar.istio.io/inject]: Unsupported value: "maybe": supported values: "true", "false"`},
		[]string{workerTemplate + ".metadata.labels[sidecar.istio.io/inject]: MPI does not work through Istio's sidecar, so Trireme sets this to \"false\" on every pod"})
}

// An empty value is a value.
func TestEmptyLabelsOfANewJob(t *testing.T) {
	job := mpiJob(func(mpiJob *v2beta1.MPIJob) {
		mpiJob.Labels = map[string]string{training.LabelJobName: "", training.LabelJobType: "", training.IstioInject: ""}
	})
	wantFindings(t, rules().CreateMPIJob(job, anywhere()), []string{
		`metadata.labels[training.kubeflow.org/job-name]: Invalid value: "": must be "resnet"; the operator sets it if it is missing`,
		`metadata.labels[training.kubeflow.org/job-type]: Invalid value: "": must be "mpijob"; the operator sets it if it is missing`,
		`metadata.labels[sidecar.istio.io/inject]: Unsupported value: "": supported values: "true", "false"`,
	}, nil)
}

// Istio has several words for yes and no, in any case.
func TestWordsOfIstio(t *testing.T) {
	for word, want := range map[string]struct{ faults, warnings int }{
		"false": {}, "False": {}, "no": {}, "off": {}, "n": {},
		"true": {warnings: 1}, "TRUE": {warnings: 1}, "yes": {warnings: 1}, "on": {warnings: 1}, "y": {warnings: 1},
		"1": {faults: 1}, "enabled": {faults: 1},
	} {
		t.Run(word, func(t *testing.T) {
			job := mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Annotations = map[string]string{training.IstioInject: word} })
			got := rules().CreateMPIJob(job, anywhere())
			if len(got.Errors) != want.faults || len(got.Warnings) != want.warnings {
				t.Errorf("want %d faults and %d warnings, got %q", want.faults, want.warnings, texts(got))
			}
		})
	}
}

// A deadline that does not fit a duration would be one in the past.
func TestDeadlinesFitADuration(t *testing.T) {
	const most = math.MaxInt64 / int64(time.Second)
	tests := map[string]struct {
		seconds int64
		want    string
	}{
		"the longest":     {most, ""},
		"a second longer": {most + 1, "Invalid value: 9223372037: must be at most 9223372036"},
		"beyond all":      {math.MaxInt64, "Invalid value: 9223372036854775807: must be at most 9223372036"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			at := func(path string) []string {
				if tc.want == "" {
					return nil
				}
				return []string{path + ": " + tc.want}
			}
			wantFindings(t, rules().CreateTrainJob(trainJob(func(trainJob *v2alpha1.TrainJob) { trainJob.Spec.ActiveDeadlineSeconds = &tc.seconds }), anywhere(withRuntime())),
				at("spec.activeDeadlineSeconds"), nil)
			wantFindings(t, rules().CreateMPIJob(mpiJob(func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.ActiveDeadlineSeconds = &tc.seconds }), anywhere()),
				at("spec.runPolicy.activeDeadlineSeconds"), nil)
		})
	}
}

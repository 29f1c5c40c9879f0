// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/testing/random"
)

// Every job that admission accepts is planned, in every stage and for every cluster, and
// its pods are valid. Jobs that admission refuses are planned too, because a namespace
// can bypass the webhook: these must only not panic.

// seeds is the number of jobs of each kind in an ordinary test run; make fuzz runs more.
const seeds = 300

func TestAcceptedJobsArePlanned(t *testing.T) {
	for kind, judge := range map[string]func(testing.TB, int64) bool{"MPIJob": judgeMPIJob, "TrainJob": judgeTrainJob} {
		t.Run(kind, func(t *testing.T) {
			accepted := 0
			for seed := range int64(seeds) {
				if judge(t, seed) {
					accepted++
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			// With all or very few accepted, the test would prove little.
			if accepted < seeds/3 || accepted == seeds {
				t.Errorf("%d of %d were accepted", accepted, seeds)
			}
		})
	}
}

func judgeMPIJob(t testing.TB, seed int64) bool {
	return planMPIJob(t, random.MPIJob(seed))
}

func judgeTrainJob(t testing.TB, seed int64) bool {
	trainJob, runtime := random.TrainJob(seed)
	return planTrainJob(t, trainJob, runtime)
}

func FuzzMPIJob(f *testing.F) {
	for i, manifest := range random.Manifests(f, "../../..", "MPIJob") {
		f.Add(int64(i), manifest)
	}
	f.Fuzz(func(t *testing.T, seed int64, text []byte) {
		judgeMPIJob(t, seed)
		sent := &v2beta1.MPIJob{}
		if json.Unmarshal(text, sent) == nil && isSmall(sent.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeWorker]) {
			planMPIJob(t, sent)
		}
	})
}

func FuzzTrainJob(f *testing.F) {
	for i, manifest := range random.Manifests(f, "../../..", "TrainJob") {
		f.Add(int64(i), manifest)
	}
	f.Fuzz(func(t *testing.T, seed int64, text []byte) {
		judgeTrainJob(t, seed)
		sent := &v2alpha1.TrainJob{}
		if json.Unmarshal(text, sent) == nil && (sent.Spec.Trainer.NumNodes == nil || *sent.Spec.Trainer.NumNodes < 1000) {
			_, runtime := random.TrainJob(seed)
			planTrainJob(t, sent, runtime)
		}
	})
}

// isSmall keeps a fuzzer from creating a billion pods.
func isSmall(workers *v2beta1.ReplicaSpec) bool {
	return workers == nil || workers.Replicas == nil || *workers.Replicas < 1000
}

// everyRules are the default rules, and those of a platform where launchers may run
// without workers.
var everyRules = func() []*validation.Rules {
	loose := config.Default()
	loose.Limits.MinWorkers = 1
	return []*validation.Rules{validation.NewRules(config.Default(), false), validation.NewRules(loose, false)}
}()

func planMPIJob(t testing.TB, mpiJob *v2beta1.MPIJob) bool {
	t.Helper()
	accepted := false
	for _, rules := range everyRules {
		accepted = accepted || len(rules.CreateMPIJob(mpiJob, wherever()).Errors) == 0
	}
	accepted = accepted && hasNothingTwice(t, "mpijobs", mpiJob)
	wantPlans(t, job.FromMPIJob(mpiJob, defaults()), accepted)
	return accepted
}

func planTrainJob(t testing.TB, trainJob *v2alpha1.TrainJob, runtime *v2alpha1.TrainingRuntimeSpec) bool {
	t.Helper()
	in, rules := wherever(), everyRules[0]
	in.Runtime = runtime
	accepted := len(rules.Runtime(runtime, 0).Errors) == 0 && len(rules.CreateTrainJob(trainJob, in).Errors) == 0 &&
		hasNothingTwice(t, "trainjobs", trainJob) && hasNothingTwice(t, "trainingruntimes", &v2alpha1.TrainingRuntime{Spec: *runtime})
	wantPlans(t, job.FromTrainJob(trainJob, runtime, defaults()), accepted)
	return accepted
}

func wherever() *validation.ClusterFacts {
	return &validation.ClusterFacts{HasPriorityClass: func(string) bool { return true }}
}

// wantPlans computes every plan of a job, twice.
func wantPlans(t testing.TB, j *job.Job, accepted bool) {
	t.Helper()
	for _, has := range everyGang {
		backend, _, err := gang.Choose(j, has)
		if err != nil {
			// The operator reports the error and creates nothing.
			continue
		}
		for _, method := range []Method{ImageVolume, InitContainer} {
			in := Environment{
				Delivery: Delivery{Method: method, Image: agentImage}, InitializerImage: initializerImage,
				ClusterDomain: "cluster.example", Gang: backend, EgressPorts: []int32{443},
			}
			for _, stage := range []Stage{Initializing, Suspended, Held, Restarting, Active, Finished} {
				state := State{
					Stage: stage, Workload: workloadUID, WorkersReady: true, Workers: workers(corev1.PodRunning),
					Launchers:    existing(j, training.RoleLauncher, 0, corev1.PodRunning),
					Initializers: existing(j, training.RoleInitializer, 0, corev1.PodRunning),
				}
				plan := Of(j, state, in)
				if first, second := asSent(t, plan), asSent(t, Of(j, state, in)); !bytes.Equal(first, second) {
					t.Errorf("%s, %s, %s: two plans of the same job differ", stage, method, backend.Name())
				}
				if !accepted {
					continue
				}
				for name, pod := range podsOf(plan) {
					for _, fault := range podFaults(pod) {
						t.Errorf("%s, %s, %s: %s: %s", stage, method, backend.Name(), name, fault)
					}
				}
			}
		}
	}
}

// podFaults are the reasons why a pod cannot be created or started, as far as the plan's
// additions cause them.
func podFaults(pod *corev1.Pod) []string {
	faults := inconsistencies(&pod.Spec)
	for _, fault := range metavalidation.ValidateLabels(pod.Labels, nil) {
		faults = append(faults, fault.Error())
	}
	for _, fault := range apivalidation.ValidateAnnotations(pod.Annotations, nil) {
		faults = append(faults, fault.Error())
	}
	if config := pod.Spec.DNSConfig; config != nil && len(config.Searches) > 32 {
		faults = append(faults, fmt.Sprintf("%d search domains", len(config.Searches)))
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		asked := corev1.ResourceList{}
		maps.Copy(asked, container.Resources.Limits)
		maps.Copy(asked, container.Resources.Requests)
		for name, request := range asked {
			if whole := pod.Spec.Resources; whole != nil && request.Cmp(whole.Requests[name]) > 0 {
				faults = append(faults, fmt.Sprintf("%s asks for more %s than its pod", container.Name, name))
			}
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			for _, fault := range utilvalidation.IsDNS1123Subdomain(claim.ClaimName) {
				faults = append(faults, fmt.Sprintf("claim %q: %s", claim.ClaimName, fault))
			}
		}
	}
	return faults
}

// schemas are the schemas of the CRDs, by their plural names.
var schemas = map[string]*structural.Structural{}

// hasNothingTwice checks that lists that are sets have no duplicates, as the API server
// does before any webhook.
func hasNothingTwice(t testing.TB, plural string, object any) bool {
	t.Helper()
	if schemas[plural] == nil {
		schemas[plural] = schemaOf(t, plural)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var content map[string]any
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	return len(listtype.ValidateListSetsAndMaps(nil, schemas[plural], content)) == 0
}

func schemaOf(t testing.TB, plural string) *structural.Structural {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../../charts/trireme/crds", "kubeflow.org_"+plural+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil); err != nil {
		t.Fatal(err)
	}
	schema, err := structural.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// A schema that is not understood would find no duplicates.
func TestDuplicatesAreFound(t *testing.T) {
	once := mpiJobObject(both(ownVariables))
	if !hasNothingTwice(t, "mpijobs", once) {
		t.Error("duplicates are found in a job without any")
	}
	twice := mpiJobObject(both(ownVariables), both(ownVariables))
	if hasNothingTwice(t, "mpijobs", twice) {
		t.Error("duplicate variables are not found")
	}
}

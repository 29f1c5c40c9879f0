// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/gang"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// Whole jobs, with what becomes of them and what is said about it.
func TestGoldenFiles(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	goldens := map[string]bool{}
	for _, input := range inputs {
		if strings.HasSuffix(input, ".golden.yaml") {
			continue
		}
		golden := strings.TrimSuffix(input, ".yaml") + ".golden.yaml"
		goldens[golden] = true
		t.Run(filepath.Base(input), func(t *testing.T) {
			data, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			result := convert(t, string(data), Options{})
			var text strings.Builder
			objects, err := result.Objects()
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []any{objects[0], objects[1], result.Report} {
				content, err := yaml.Marshal(part)
				if err != nil {
					t.Fatal(err)
				}
				text.WriteString("---\n" + string(content))
			}
			goldenfile.Check(t, golden, []byte(text.String()))
		})
	}
	goldenfile.NoOthers(t, "testdata/*.golden.yaml", goldens)
}

// documents are those of a YAML text, as JSON.
func documents(t *testing.T, text string) (found [][]byte) {
	t.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		content, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, content)
	}
	return found
}

func convert(t *testing.T, text string, options Options) *Result {
	t.Helper()
	objects, err := Read(documents(t, text))
	if err != nil {
		t.Fatal(err)
	}
	result, err := Convert(objects[0], options)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// jobWith is a small MPIJob with more in it. Every line of more has its place as
// its first word: job, launcher, worker, or the main container of either.
func jobWith(more ...string) string {
	places := map[string]string{}
	for _, line := range more {
		place, text, _ := strings.Cut(line, " ")
		places[place] += strings.ReplaceAll(text, "\n", "") + "\n"
	}
	in := func(place, indent string) string {
		var lines []string
		for _, line := range strings.Split(strings.TrimRight(places[place], "\n"), "\n") {
			lines = append(lines, indent+line)
		}
		return strings.Join(lines, "\n")
	}
	return `apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: small}
spec:
` + in("job", "  ") + `
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
` + in("launcher", "          ") + `
          containers:
          - name: main
            image: i
` + in("launcher.main", "            ") + `
    Worker:
      replicas: 2
      template:
        spec:
` + in("worker", "          ") + `
          containers:
          - name: main
            image: i
` + in("worker.main", "            ") + "\n"
}

const (
	launcherMain = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0]."
	workerMain   = "spec.mpiReplicaSpecs.Worker.template.spec.containers[0]."
	ranks        = "launcher.main command: [mpirun, -np, '2', train]"
	needs        = "worker.main resources: {limits: {cpu: 1, memory: 1Gi}}"
)

// A TrainJob requires all hosts unless it says otherwise, so only a job without the
// field is warned.
func TestPlainCommandAndRequireAllHosts(t *testing.T) {
	const consequence = "the job fails if a node is not used"
	for field, want := range map[string]bool{"job #": true, "job requireAllHosts: true": false, "job requireAllHosts: false": false} {
		result := convert(t, jobWith(ranks, needs, field), Options{})
		at := slices.IndexFunc(result.Report.Entries, func(entry Entry) bool { return entry.Path == launcherMain+"command" })
		if at < 0 || strings.Contains(result.Report.Entries[at].Why, consequence) != want || !strings.Contains(result.Report.Entries[at].Why, "mpirun -np 2") {
			t.Errorf("%s: %+v", field, result.Report.Entries)
		}
	}
}

func TestEntries(t *testing.T) {
	for name, test := range map[string]struct {
		job     string
		options Options
		path    string
		outcome Outcome
		words   string
	}{
		"a limit of time for no limit":           {jobWith(ranks, needs), Options{}, timeoutPath, Default, "fails after 300 s"},
		"a limit of time with a known scheduler": {jobWith(ranks, needs), Options{Scheduler: job.Volcano}, timeoutPath, Default, "fails after 3600 s"},
		"a time with a known scheduler": {jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 600}}"), Options{Scheduler: job.Native},
			timeoutPath, Moved, ""},
		"a time that is too short": {jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 6}}"), Options{Scheduler: job.Coscheduling},
			timeoutPath, Moved, "is 60, the nearest"},
		"a time with no known scheduler": {jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 600}}"), Options{}, timeoutPath, Review, "--scheduler"},
		"the usual time":                 {jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 300}}"), Options{}, timeoutPath, Dropped, "is the default of a TrainJob"},
		"native gangs are not Kueue's": {strings.Replace(jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 600}}"),
			"{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: q}}", 1), Options{Scheduler: job.Native}, timeoutPath, Review, "has a gang scheduler"},
		"a script is not put behind mpirun": {jobWith(needs, "launcher.main command: [sh, -c, run]"), Options{}, launcherMain + "command", Moved, ""},
		"arguments of an entrypoint":        {jobWith(needs, "launcher.main args: [mpirun, -np, '2', train]"), Options{}, launcherMain + "args", Moved, ""},
		"a plain mpirun":                    {jobWith(needs, ranks), Options{}, launcherMain + "command", Mapped, "without mpirun -np 2: the operator adds it"},
		"an mpirun on fewer ranks":          {jobWith(needs, "launcher.main command: [mpirun, -np, '1', train]"), Options{}, launcherMain + "command", Mapped, ""},
		"an mpirun with options":            {jobWith(needs, "launcher.main command: [mpirun, -np, '2', --oversubscribe, train]"), Options{}, launcherMain + "command", Mapped, ""},
		"a host of the MPIJob":              {jobWith(needs, "launcher.main command: [mpirun, -H, small-worker-0, train]"), Options{}, launcherMain + "command[2]", Review, "small-worker-0-0"},
		"an rsh agent of its own": {jobWith(needs, ranks, "launcher.main env: [{name: OMPI_MCA_plm_rsh_agent, value: ssh}]", "worker.main command: [/usr/sbin/sshd, -De]"), Options{},
			launcherMain + "env[0]", Review, "no longer runs"},
		"a probe of the sshd": {jobWith(needs, ranks, "worker.main command: [/usr/sbin/sshd, -De]", "worker.main livenessProbe: {tcpSocket: {port: 22}}"), Options{},
			workerMain + "livenessProbe", Dropped, "checks the sshd"},
		"another probe": {jobWith(needs, ranks, "worker.main command: [/usr/sbin/sshd, -De]", "worker.main startupProbe: {exec: {command: [pgrep, sshd]}}"), Options{},
			workerMain + "startupProbe", Review, "may check the sshd"},
		"a user that the image chose": {jobWith(needs, ranks, "worker.main command: [/usr/sbin/sshd, -De]"), Options{},
			"spec.mpiReplicaSpecs.Worker.template.spec.securityContext", Review, "runAsUser"},
		"resources of a whole pod": {jobWith(needs, ranks, "worker resources: {limits: {cpu: 2, memory: 2Gi}}"), Options{}, workerMain + "resources", Moved, ""},
		"variables of one role":    {jobWith(needs, ranks, "worker.main env: [{name: A, value: b}]"), Options{}, workerMain + "env", Moved, ""},
		"volumes that a sidecar has too": {jobWith(needs, ranks,
			"worker volumes: [{name: v, emptyDir: {}}]", "worker initContainers: [{name: i, image: i, volumeMounts: [{name: v, mountPath: /v}]}]", "worker.main volumeMounts: [{name: v, mountPath: /v}]",
			"launcher volumes: [{name: v, emptyDir: {}}]", "launcher.main volumeMounts: [{name: v, mountPath: /v}]"), Options{}, "spec.mpiReplicaSpecs.Worker.template.spec.volumes", Moved, ""},
		"workers that ask for nothing":      {jobWith(ranks), Options{}, "", Review, "missing resource requests"},
		"pods that mpi-operator would keep": {jobWith(needs, ranks), Options{}, "spec.runPolicy.cleanPodPolicy", Default, "mpi-operator deletes no pods"},
		"workers that nobody counted":       {strings.Replace(jobWith(needs, ranks), "replicas: 2", "restartPolicy: Never", 1), Options{}, "spec.mpiReplicaSpecs.Worker.replicas", Default, "mpi-operator creates no worker"},
		"a place that Kueue may have chosen": {strings.Replace(jobWith(needs, ranks, "worker nodeSelector: {a: b}"), "{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: q}}", 1),
			Options{Accepted: true}, "spec.mpiReplicaSpecs.Worker.template.spec.nodeSelector", Review, "Kueue adds to it"},
		"a place in a file": {strings.Replace(jobWith(needs, ranks, "worker nodeSelector: {a: b}"), "{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: q}}", 1),
			Options{}, "spec.mpiReplicaSpecs.Worker.template.spec.nodeSelector", Moved, ""},
		"workers whose arguments are no sshd": {jobWith(needs, ranks, "worker.main args: [serve]"), Options{}, workerMain + "args", Review, "may do more than start an sshd"},
		"variables that are there twice": {jobWith(needs, ranks, "worker.main env: [{name: A, value: b}, {name: A, value: c}]", "launcher.main env: [{name: A, value: b}, {name: A, value: c}]"), Options{},
			workerMain + "env", Moved, ""},
		"what Kueue wrote into a template": {strings.NewReplacer("{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: q}}",
			"      template:\n", "      template:\n        metadata: {labels: {kueue.x-k8s.io/podset: w, a: b}}\n").Replace(jobWith(needs, ranks)), Options{Accepted: true},
			"spec.mpiReplicaSpecs.Worker.template.metadata.labels[kueue.x-k8s.io/podset]", Review, "Kueue adds to it"},
		"what is beside something unknown": {jobWith(needs, ranks, "worker affinity: {nodeAffinity: {}, colour: blue}"), Options{},
			"spec.mpiReplicaSpecs.Worker.template.spec.affinity.nodeAffinity", Moved, ""},
		"no limit, said":           {jobWith(needs, ranks, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 0}}"), Options{}, timeoutPath, Dropped, "no limit"},
		"no limit, known whom":     {jobWith(needs, ranks, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 0}}"), Options{Scheduler: job.Volcano}, timeoutPath, Dropped, "no limit"},
		"pods that are kept":       {jobWith(needs, ranks, "job runPolicy: {cleanPodPolicy: None}"), Options{}, "spec.runPolicy.cleanPodPolicy", Mapped, ""},
		"policies that differ":     {jobWith(needs, ranks, "job cleanPodPolicy: All", "job runPolicy: {cleanPodPolicy: None}"), Options{}, "spec.runPolicy.cleanPodPolicy", Review, "All"},
		"MultiKueue":               {jobWith(needs, ranks, "job runPolicy: {managedBy: kueue.x-k8s.io/multikueue}"), Options{}, "spec.runPolicy.managedBy", Review, "does not support TrainJobs"},
		"a role that there is not": {strings.Replace(jobWith(needs, ranks), "    Worker:", "    Evaluator: {replicas: 1}\n    Worker:", 1), Options{}, "spec.mpiReplicaSpecs.Evaluator", Review, "not a role"},
		"something empty":          {jobWith(needs, ranks, "launcher.main colour: null"), Options{}, launcherMain + "colour", Moved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			result := convert(t, test.job, test.options)
			report := result.Report
			wantAccounted(t, test.job, result)
			at := slices.IndexFunc(report.Entries, func(entry Entry) bool {
				return entry.Path == test.path && entry.Outcome == test.outcome && strings.Contains(entry.Why, test.words) && (test.words != "" || entry.Why == "")
			})
			if at < 0 {
				t.Errorf("no entry %s %s with %q in\n%s", test.path, test.outcome, test.words, cmp.Diff([]Entry{}, report.Entries, cmp.AllowUnexported(Entry{})))
			}
		})
	}
}

func TestCommandsThatOnlyStartAnSSHD(t *testing.T) {
	for line, want := range map[string]bool{
		"/usr/sbin/sshd -De -f /home/mpiuser/.sshd_config": true,
		"sshd":                     true,
		"sh -c /usr/sbin/sshd -De": true,
		"/bin/bash -c mkdir -p /run/sshd && exec /usr/sbin/sshd":        true,
		"bash -c mkdir -p /run/sshd; service ssh start; sleep infinity": true,
		"sh -c mkdir -p /run/sshd":                                      false,
		"sh -c prepare; /usr/sbin/sshd -De":                             false,
		"sh -c /usr/sbin/sshd -De > /tmp/log":                           false,
		"sh -c /usr/sbin/sshd -p $PORT":                                 false,
		"sleep infinity":                                                false,
		"/entrypoint.sh /usr/sbin/sshd":                                 false,
		"python serve.py":                                               false,
	} {
		words := strings.Fields(line)
		if strings.Contains(line, " -c ") {
			words = append(words[:2], strings.Join(words[2:], " "))
		}
		if got := job.StartsSSHD(words); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
		}
	}
}

// What the rules have against both kinds alike is said of a file, and not of a job
// that a cluster with other limits has accepted.
func TestOtherLimitsOfACluster(t *testing.T) {
	text := jobWith(ranks, "worker.main resources: {limits: {cpu: 10m, memory: 1Gi}}", "job slotsPerWorker: 32")
	refused := func(options Options) (paths []string) {
		for _, entry := range convert(t, text, options).Report.Of(Review) {
			paths = append(paths, entry.Path)
		}
		return paths
	}
	if diff := cmp.Diff([]string{workerMain + "resources", "spec.slotsPerWorker"}, refused(Options{})); diff != "" {
		t.Errorf("of a file: %s", diff)
	}
	// A TrainJob has another limit of slots than an MPIJob.
	if diff := cmp.Diff([]string{"spec.slotsPerWorker"}, refused(Options{Accepted: true})); diff != "" {
		t.Errorf("of a cluster: %s", diff)
	}
}

// wantAccounted fails unless every field is where the report says that it is.
func wantAccounted(t *testing.T, text string, result *Result) {
	t.Helper()
	objects, err := Read(documents(t, text))
	if err != nil {
		t.Fatal(err)
	}
	raw := map[string]any(objects[0])
	// As it is stored: 1 and "1" are the same quantity.
	var read v2beta1.MPIJob
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &read); err != nil {
		t.Fatal(err)
	}
	known := unstructuredOf(t, &read)
	outputs := map[string]map[string]any{"TrainJob": unstructuredOf(t, result.TrainJob), "TrainingRuntime": unstructuredOf(t, result.Runtime)}
	for _, path := range leaves(known, "") {
		if fault := accounted(known, outputs, result.Report, path); fault != "" {
			value, written := lookup(raw, path)
			if written && !isZero(value) {
				t.Errorf("%s: %s", path, fault)
			}
		}
	}
}

// A launcher that does the work itself becomes one worker, and a launcher besides.
func TestLauncherWithoutWorkers(t *testing.T) {
	text, _, _ := strings.Cut(jobWith("job runLauncherAsWorker: true", "launcher.main command: [train]", "launcher.main resources: {limits: {cpu: 4, memory: 8Gi}}"), "    Worker:\n")
	result := convert(t, text, Options{})
	model := job.FromTrainJob(result.TrainJob, &result.Runtime.Spec, job.Defaults{})
	if worker := model.Worker.Template.Spec.Containers[0]; model.Worker.Replicas != 1 || !model.WorkersRunAgent() || worker.Image != "i" || worker.Resources.Limits.Cpu().Value() != 4 {
		t.Errorf("%d workers of %+v", model.Worker.Replicas, worker)
	}
	if !slices.ContainsFunc(result.Report.Of(Review), func(entry Entry) bool { return entry.Path == "spec.mpiReplicaSpecs.Worker" }) {
		t.Error("nobody is told of the worker")
	}
}

// What becomes of a field is said once.
func TestNothingIsSaidTwice(t *testing.T) {
	seen := map[string]bool{}
	text := jobWith(needs, ranks, "job cleanPodPolicy: All", "job runPolicy: {cleanPodPolicy: None}")
	for _, entry := range convert(t, text, Options{}).Report.Entries {
		if seen[entry.Path] {
			t.Errorf("%s is there twice", entry.Path)
		}
		seen[entry.Path] = true
	}
}

// A name that the API server completes is as good as one that is written.
func TestAGeneratedName(t *testing.T) {
	result := convert(t, strings.Replace(jobWith(ranks, needs), "{name: small}", "{generateName: small-}", 1), Options{})
	if result.TrainJob.GenerateName != "small-" || result.TrainJob.Name != "" || result.Runtime.Name != "small" || result.Report.NeedsReview() {
		t.Errorf("%+v with %s: %+v", result.TrainJob.ObjectMeta, result.Runtime.Name, result.Report.Of(Review))
	}
}

// What no rule deals with is for a person: a field that an MPIJob gets one day.
func TestWhatNoRuleDealsWith(t *testing.T) {
	migration := &migration{raw: map[string]any{"spec": map[string]any{"new": "field", "none": ""}}, report: &Report{}}
	migration.rest()
	if got := migration.report.Entries; len(got) != 2 || got[0].Path != "spec.new" || got[0].Outcome != Review || got[1].Outcome != Dropped {
		t.Errorf("the report says %+v", got)
	}
}

// Every scheduler that a runtime can set is one that a job can be converted for.
func TestEverySchedulerIsConverted(t *testing.T) {
	for _, scheduler := range gang.Names() {
		result := convert(t, jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 600}}"), Options{Scheduler: scheduler})
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(result.Runtime)
		if err != nil {
			t.Fatal(err)
		}
		policy, _, _ := unstructured.NestedMap(content, "spec", "podGroupPolicy")
		if _, isSet := policy[string(scheduler)]; !isSet {
			t.Errorf("for %s the runtime has podGroupPolicy %v", scheduler, policy)
		}
	}
}

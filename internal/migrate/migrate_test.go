package migrate

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/job"
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
		"a time with no known scheduler": {jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 600}}"), Options{}, timeoutPath, Look, "--scheduler"},
		"the usual time":                 {jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 300}}"), Options{}, timeoutPath, Dropped, "anyway"},
		"native gangs are not Kueue's": {strings.Replace(jobWith(ranks, needs, "job runPolicy: {schedulingPolicy: {scheduleTimeoutSeconds: 600}}"),
			"{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: q}}", 1), Options{Scheduler: job.Native}, timeoutPath, Look, "names the gang scheduler"},
		"a script is not put behind mpirun": {jobWith(needs, "launcher.main command: [sh, -c, run]"), Options{}, launcherMain + "command", Moved, ""},
		"arguments of an entrypoint":        {jobWith(needs, "launcher.main args: [mpirun, -np, '2', train]"), Options{}, launcherMain + "args", Moved, ""},
		"a plain mpirun":                    {jobWith(needs, ranks), Options{}, launcherMain + "command", Mapped, "without mpirun -np 2: the operator writes it"},
		"an mpirun on fewer ranks":          {jobWith(needs, "launcher.main command: [mpirun, -np, '1', train]"), Options{}, launcherMain + "command", Mapped, ""},
		"an mpirun with options":            {jobWith(needs, "launcher.main command: [mpirun, -np, '2', --oversubscribe, train]"), Options{}, launcherMain + "command", Mapped, ""},
		"a host of the MPIJob":              {jobWith(needs, "launcher.main command: [mpirun, -H, small-worker-0, train]"), Options{}, launcherMain + "command[2]", Look, "small-worker-0-0"},
		"an rsh agent of its own": {jobWith(needs, ranks, "launcher.main env: [{name: OMPI_MCA_plm_rsh_agent, value: ssh}]", "worker.main command: [/usr/sbin/sshd, -De]"), Options{},
			launcherMain + "env[0]", Look, "does not run any more"},
		"a probe of the sshd": {jobWith(needs, ranks, "worker.main command: [/usr/sbin/sshd, -De]", "worker.main livenessProbe: {tcpSocket: {port: 22}}"), Options{},
			workerMain + "livenessProbe", Dropped, "asks for the sshd"},
		"another probe": {jobWith(needs, ranks, "worker.main command: [/usr/sbin/sshd, -De]", "worker.main startupProbe: {exec: {command: [pgrep, sshd]}}"), Options{},
			workerMain + "startupProbe", Look, "may ask for the sshd"},
		"a user that the image chose": {jobWith(needs, ranks, "worker.main command: [/usr/sbin/sshd, -De]"), Options{},
			"spec.mpiReplicaSpecs.Worker.template.spec.securityContext", Look, "runAsUser"},
		"resources of a whole pod": {jobWith(needs, ranks, "worker resources: {limits: {cpu: 2, memory: 2Gi}}"), Options{}, workerMain + "resources", Moved, ""},
		"variables of one role":    {jobWith(needs, ranks, "worker.main env: [{name: A, value: b}]"), Options{}, workerMain + "env", Moved, ""},
		"volumes that a sidecar has too": {jobWith(needs, ranks,
			"worker volumes: [{name: v, emptyDir: {}}]", "worker initContainers: [{name: i, image: i, volumeMounts: [{name: v, mountPath: /v}]}]", "worker.main volumeMounts: [{name: v, mountPath: /v}]",
			"launcher volumes: [{name: v, emptyDir: {}}]", "launcher.main volumeMounts: [{name: v, mountPath: /v}]"), Options{}, "spec.mpiReplicaSpecs.Worker.template.spec.volumes", Moved, ""},
		"workers that ask for nothing":      {jobWith(ranks), Options{}, "", Look, "missing resource requests"},
		"pods that mpi-operator would keep": {jobWith(needs, ranks), Options{}, "spec.runPolicy.cleanPodPolicy", Default, "mpi-operator deletes no pods"},
		"workers that nobody counted":       {strings.Replace(jobWith(needs, ranks), "replicas: 2", "restartPolicy: Never", 1), Options{}, "spec.mpiReplicaSpecs.Worker.replicas", Default, "mpi-operator makes no worker"},
		"a place that Kueue may have chosen": {strings.Replace(jobWith(needs, ranks, "worker nodeSelector: {a: b}"), "{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: q}}", 1),
			Options{Accepted: true}, "spec.mpiReplicaSpecs.Worker.template.spec.nodeSelector", Look, "Kueue adds to it"},
		"a place in a file": {strings.Replace(jobWith(needs, ranks, "worker nodeSelector: {a: b}"), "{name: small}", "{name: small, labels: {kueue.x-k8s.io/queue-name: q}}", 1),
			Options{}, "spec.mpiReplicaSpecs.Worker.template.spec.nodeSelector", Moved, ""},
		"policies that differ":     {jobWith(needs, ranks, "job cleanPodPolicy: All", "job runPolicy: {cleanPodPolicy: None}"), Options{}, "spec.runPolicy.cleanPodPolicy", Look, "All"},
		"MultiKueue":               {jobWith(needs, ranks, "job runPolicy: {managedBy: kueue.x-k8s.io/multikueue}"), Options{}, "spec.runPolicy.managedBy", Mapped, ""},
		"a role that there is not": {strings.Replace(jobWith(needs, ranks), "    Worker:", "    Evaluator: {replicas: 1}\n    Worker:", 1), Options{}, "spec.mpiReplicaSpecs.Evaluator", Look, "no role"},
		"something empty":          {jobWith(needs, ranks, "launcher.main colour: null"), Options{}, launcherMain + "colour", Moved, ""},
	} {
		t.Run(name, func(t *testing.T) {
			report := convert(t, test.job, test.options).Report
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
		if got := startsSSHD(words); got != want {
			t.Errorf("%s: %t, want %t", line, got, want)
		}
	}
}

// What the rules have against both kinds alike is said of a file, and not of a job
// that a cluster with other limits has accepted.
func TestOtherLimitsOfACluster(t *testing.T) {
	text := jobWith(ranks, "worker.main resources: {limits: {cpu: 10m, memory: 1Gi}}", "job slotsPerWorker: 32")
	refused := func(options Options) (paths []string) {
		for _, entry := range convert(t, text, options).Report.Of(Look) {
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

// A runtime of the namespace that says the same is taken, and one that says
// something else keeps its name.
func TestRuntimesOfANamespace(t *testing.T) {
	existing := &Existing{}
	first := convert(t, jobWith(ranks, needs), Options{Existing: existing})
	existing.Add(first.Runtime)
	for name, test := range map[string]struct {
		job, want string
		made      bool
	}{
		"the same":                   {strings.Replace(jobWith(ranks, needs), "small", "other", 1), "TrainingRuntime small", false},
		"the same name":              {jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "TrainingRuntime small-2", true},
		"another one":                {strings.Replace(jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "small", "other", 1), "TrainingRuntime other", true},
		"the same name, elsewhere":   {strings.Replace(jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "{name: small}", "{name: small, namespace: b}", 1), "TrainingRuntime small", true},
		"the same, elsewhere":        {strings.Replace(jobWith(ranks, needs), "{name: small}", "{name: small, namespace: b}", 1), "TrainingRuntime small", true},
		"the same, by a first name":  {strings.Replace(jobWith(ranks, needs), "{name: small}", "{generateName: small-}", 1), "TrainingRuntime small", false},
		"another, by its first name": {strings.Replace(jobWith(ranks, needs, "worker nodeSelector: {a: b}"), "{name: small}", "{generateName: small-}", 1), "TrainingRuntime small-2", true},
	} {
		t.Run(name, func(t *testing.T) {
			result := convert(t, test.job, Options{Existing: existing})
			if result.Report.Runtime != test.want || (result.Runtime != nil) != test.made || result.Runtime != nil && "TrainingRuntime "+result.Runtime.Name != test.want {
				t.Errorf("the job names %s, want %s", result.Report.Runtime, test.want)
			}
		})
	}
}

// The runtimes that are installed set what most MPIJobs do not; one that says the
// same needs no runtime of its own.
func TestAnInstalledRuntimeIsTaken(t *testing.T) {
	var intel v2alpha1.ClusterTrainingRuntime
	data, err := os.ReadFile("../../config/runtimes/mpi-intel-cpu.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(data, &intel); err != nil {
		t.Fatal(err)
	}
	options := Options{Runtimes: []v2alpha1.ClusterTrainingRuntime{intel}}
	same := jobWith("job mpiImplementation: Intel", "job slotsPerWorker: 2", "launcher.main env: [{name: HOME, value: /tmp}, {name: I_MPI_PIN, value: '0'}]",
		"launcher.main command: [mpirun, -np, '4', train]", "launcher.main resources: {limits: {cpu: 1, memory: 1Gi}}", needs,
		"worker.main env: [{name: HOME, value: /tmp}, {name: I_MPI_PIN, value: '0'}, {name: OMP_NUM_THREADS, value: '4'}, {name: MKL_NUM_THREADS, value: '4'}]")
	for text, want := range map[string]string{
		same: "ClusterTrainingRuntime mpi-intel-cpu",
		strings.Replace(same, "OMP_NUM_THREADS, value: '4'", "OMP_NUM_THREADS, value: '8'", 1): "TrainingRuntime small",
		strings.Replace(same, "mpiImplementation: Intel", "mpiImplementation: MPICH", 1):       "TrainingRuntime small",
		strings.Replace(same, "-np, '4', train", "-ppn, '2', train", 1):                        "ClusterTrainingRuntime mpi-intel-cpu",
		strings.Replace(same, "[mpirun, -np, '4', train]", "[sh, -c, train]", 1):               "TrainingRuntime small",
	} {
		result := convert(t, text, options)
		if got := result.Report.Runtime; got != want || (result.Runtime == nil) != strings.HasPrefix(want, "Cluster") {
			t.Errorf("the job names %s, want %s:\n%s", got, want, text)
		}
		if objects, err := result.Objects(); err != nil || result.Runtime == nil && len(objects) != 1 {
			t.Errorf("%d objects are made, %v", len(objects), err)
		}
	}
}

func TestOldVersionsAreRecognised(t *testing.T) {
	for version, words := range map[string]string{"v1": "mainContainer", "v1alpha2": "mainContainer", "v1alpha1": "numNodes", "v3": "v2beta1"} {
		_, err := Read(documents(t, "apiVersion: kubeflow.org/"+version+"\nkind: MPIJob\nmetadata: {name: old}\n"))
		tooOld, is := err.(*TooOldError)
		if !is || !strings.Contains(err.Error(), "MPIJob old is of version "+version) || !strings.Contains(strings.Join(tooOld.Advice, " "), words) {
			t.Errorf("%s: %v", version, err)
		}
	}
}

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		text, want, err string
	}{
		"documents":              {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n" + jobWith(), "ConfigMap a, MPIJob small", ""},
		"a list":                 {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: s}}\n", "Secret s", ""},
		"a typed list":           {"apiVersion: kubeflow.org/v2beta1\nkind: MPIJobList\nitems:\n- metadata: {generateName: b-}\n", "MPIJob b-", ""},
		"JSON":                   {`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}`, "Secret s", ""},
		"no object":              {"a: b", "", "document 1 is no object of Kubernetes: it lacks apiVersion or kind"},
		"nothing":                {"", "", "lacks apiVersion or kind"},
		"an old job in a list":   {"apiVersion: kubeflow.org/v1\nkind: MPIJobList\nitems: [{metadata: {name: b}}]\n", "", "MPIJob b is of version v1"},
		"another group's MPIJob": {"apiVersion: example.com/v1\nkind: MPIJob\nmetadata: {name: b}\n", "MPIJob b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Read(documents(t, test.text))
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Fatalf("the error is %v, want %q", err, test.err)
			}
			var names []string
			for _, object := range objects {
				names = append(names, object.Named())
			}
			if got := strings.Join(names, ", "); got != test.want {
				t.Errorf("read %q, want %q", got, test.want)
			}
		})
	}
}

func TestWhatIsNoJobIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ spec, err string }{
		"no launcher":                 {"mpiReplicaSpecs: {Worker: {}}", "has no launcher"},
		"a launcher without contents": {"mpiReplicaSpecs: {Launcher: {}}", "has no launcher"},
		"workers without contents":    {"mpiReplicaSpecs: {Launcher: {template: {spec: {containers: [{name: a}]}}}, Worker: {replicas: 2}}", "workers without a container"},
		"another type":                {"slotsPerWorker: many", "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			objects, err := Read(documents(t, "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: odd}\nspec:\n  "+test.spec+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Convert(objects[0], Options{}); err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), "MPIJob odd") {
				t.Errorf("%v does not say %q", err, test.err)
			}
		})
	}
}

func TestAJobWithoutANameIsRefused(t *testing.T) {
	objects, err := Read(documents(t, strings.Replace(jobWith(ranks, needs), "{name: small}", "{labels: {a: b}}", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Convert(objects[0], Options{}); err == nil || !strings.Contains(err.Error(), "has no name") {
		t.Error(err)
	}
}

func TestPaths(t *testing.T) {
	value := map[string]any{"a": []any{map[string]any{"b.c/d": "1", `e]"`: "2", "7": "3"}}, "empty": map[string]any{}}
	var got []string
	for _, path := range leaves(value, "") {
		found, there := lookup(value, path)
		if !there {
			t.Errorf("%s leads nowhere", path)
		}
		text, _ := found.(string)
		got = append(got, path+"="+text)
	}
	want := []string{`a[0][7]=3`, `a[0][b.c/d]=1`, `a[0]["e]\""]=2`, `empty=`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if isBelow("spec.abc", "spec.ab") || !isBelow("spec.ab[0]", "spec.ab") || isBelow("spec", "") {
		t.Error("a path is not below what it only begins with")
	}
}

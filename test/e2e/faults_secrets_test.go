// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/surface"
)

// piece is how much of a secret is too much.
const piece = 16

// planted are secrets that were put where users put theirs, by what they are. They are
// found by any piece of them, as they are or in base64.
type planted struct {
	// by is which secret a piece is of.
	by map[string]string
}

func (planted *planted) add(name string, secret []byte) {
	if planted.by == nil {
		planted.by = map[string]string{}
	}
	forms := []string{string(secret)}
	// In base64 it depends on what is before it: 0, 1 or 2 bytes beyond a group of three.
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), secret...))
		forms = append(forms, text[before+min(before, 1):len(text)-2])
	}
	for _, form := range forms {
		for at := 0; at+piece <= len(form); at++ {
			planted.by[form[at:at+piece]] = name
		}
	}
}

// in are the secrets of which a text has a piece.
func (planted *planted) in(text string) []string {
	found := map[string]bool{}
	for at := 0; at+piece <= len(text); at++ {
		if name, is := planted.by[text[at:at+piece]]; is {
			found[name] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// look fails the test if a text has a secret in it, but for those that it may have.
func (planted *planted) look(t *testing.T, where, text string, except ...string) {
	t.Helper()
	if text == "" {
		t.Errorf("%s: there is nothing to look at", where)
	}
	for _, name := range planted.in(text) {
		if !slices.Contains(except, name) {
			t.Errorf("%s has the %s:\n%s", where, name, planted.around(text, name))
		}
	}
}

// around is where a secret is in a text.
func (planted *planted) around(text, name string) string {
	for at := 0; at+piece <= len(text); at++ {
		if planted.by[text[at:at+piece]] == name {
			return text[max(0, at-300):min(len(text), at+100)]
		}
	}
	return ""
}

// Names of what is planted.
const (
	inVariable   = "value of a variable"
	inSecretKey  = "value of a variable from a Secret"
	inArgument   = "token on the command line"
	inAnnotation = "annotation"
	inStorage    = "credentials of the storage"
	inRefused    = "value of a variable of a job that is refused"
	clientKey    = "key of the launcher"
	hostKey      = "key of the workers"
	bearerToken  = "token of the user"
)

// written are those that a user writes into a job: they are in the job, and in what is
// made of it for Kubernetes to start, wherever that is shown as it is. All others are
// in their Secrets, and nowhere else.
var written = []string{inVariable, inArgument, inAnnotation}

// secretWorld is a namespace whose jobs have secrets in every place where users put
// them.
type secretWorld struct {
	planted
	server *theServer
	ada    user
	jobs   map[string]*theJob
	value  map[string]string
}

// newSecret is a value that looks like a secret, and that no other text has a piece of.
func (world *secretWorld) newSecret(name string) string {
	value := "s3" + rand.Text() + rand.Text()
	world.add(name, []byte(value))
	world.value[name] = value
	return value
}

// Nothing that is secret is where it does not belong: not in logs of ours, events,
// status, metrics, audit, nor in the files of workers; as it is, in base64, or in part.
func TestPlantedSecretsStayWhereTheyAre(t *testing.T) {
	t.Parallel()
	world := &secretWorld{server: reachServer(t), ada: newUser(t), jobs: map[string]*theJob{}, value: map[string]string{}}
	since := time.Now().Add(-2 * time.Second)
	// Its other parts are the same in the tokens with which pods report.
	signature := world.ada.token[strings.LastIndexByte(world.ada.token, '.')+1:]
	world.add(bearerToken, []byte(signature))
	world.submitAll(t)
	world.lookIntoWorkers(t)
	world.refuse(t)
	world.untilEnded(t)
	world.lookAtObjects(t)
	world.lookAtEverybodysEvents(t)
	world.lookAtLogs(t, since)
	world.lookAtMetrics(t)
	world.lookAtServer(t)
	world.lookAtOdh(t)
	// What was asked for above is in these again.
	world.lookAtLogs(t, since)
}

// jobsWithSecrets are programs that end well, that fail and print what they know, and
// that were written as people write them by mistake.
var jobsWithSecrets = map[string]string{
	"ends-well": "import os, time\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nprint('all ranks are up', flush=True)\nwhile not os.path.exists('/tmp/over'):\n  time.sleep(0.2)",
	"fails":     "import os, sys\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nraise RuntimeError('cannot log in with ' + ' '.join(sys.argv) + os.environ['DB_PASSWORD'] + os.environ['API_TOKEN'])",
	"aborts":    "import os, sys\nfrom mpi4py import MPI\nprint('token=' + os.environ['API_TOKEN'], ' '.join(sys.argv), file=sys.stderr, flush=True)\nMPI.COMM_WORLD.Abort(3)",
	"one-piece": "",
}

// fetches is a job whose data cannot be fetched: nobody is there. Its initializer says
// so, and goes on trying.
const fetches = "fetches"

// submitAll starts them, of both kinds, and that one.
func (world *secretWorld) submitAll(t *testing.T) {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{inVariable, inArgument, inAnnotation} {
		world.newSecret(name)
	}
	secrets := map[string]map[string]string{
		"credentials": {"token": world.newSecret(inSecretKey)},
		"storage":     {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": world.newSecret(inStorage), "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"},
	}
	for name, data := range secrets {
		if err := api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: world.ada.namespace, Name: name}, StringData: data}); err != nil {
			t.Fatal(err)
		}
	}
	for name, program := range jobsWithSecrets {
		for kind, object := range both(2, program) {
			world.plant(object, name == "one-piece")
			object.SetName(name + "-" + strings.ToLower(kind))
			world.jobs[object.GetName()] = submitTo(t, api, world.ada.namespace, object)
			// At once: the keys are deleted with the end of the job.
			world.learnKeys(t, object.GetName())
		}
	}
	fetching := implementations[1].trainJob(2, waiting)
	fetching.Name = fetches
	world.plant(fetching, false)
	fetching.Spec.Initializer = &v2alpha1.Initializer{Dataset: from("s3://data/digits"), Storage: &v2alpha1.InitializerStorage{Size: new(resource.MustParse("10Mi"))}}
	world.jobs[fetches] = submitTo(t, api, world.ada.namespace, fetching)
}

// plant puts secrets into a job: its annotations, its environment, and its command,
// which may be one long word.
func (world *secretWorld) plant(object client.Object, inOnePiece bool) {
	object.SetAnnotations(map[string]string{"example.com/webhook-token": world.value[inAnnotation]})
	environment := []corev1.EnvVar{
		{Name: "DB_PASSWORD", Value: world.value[inVariable]},
		{Name: "API_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "credentials"}, Key: "token"}}},
	}
	arguments := []string{"--token=" + world.value[inArgument], "--password", world.value[inArgument]}
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		object.Spec.Trainer.Env = environment
		object.Spec.Trainer.Command = append(object.Spec.Trainer.Command, arguments...)
		if inOnePiece {
			object.Spec.Trainer.Command = []string{"python3 train.py " + strings.Join(arguments, " ")}
		}
	case *v2beta1.MPIJob:
		for _, replica := range object.Spec.MPIReplicaSpecs {
			replica.Template.Spec.Containers[0].Env = environment
		}
		launcher := &object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
		launcher.Command = append(launcher.Command, arguments...)
		if inOnePiece {
			launcher.Command = []string{"mpirun python3 train.py " + strings.Join(arguments, " ")}
		}
	}
}

// learnKeys plants nothing: jobs have keys of their own.
func (world *secretWorld) learnKeys(t *testing.T, name string) {
	t.Helper()
	job := world.jobs[name]
	secret := map[bool]string{true: name + "-ssh-key", false: name + "-ssh"}[strings.HasSuffix(name, "mpijob")]
	var found corev1.Secret
	eventually.Succeeds(t, name+" has its keys", func() error {
		return job.client.Get(t.Context(), client.ObjectKey{Namespace: job.namespace, Name: secret}, &found)
	})
	for field, what := range map[string]string{protocol.ClientKey: clientKey, protocol.HostKey: hostKey} {
		parsed, err := ssh.ParseRawPrivateKey(found.Data[field])
		if err != nil {
			t.Fatal(err)
		}
		key, is := parsed.(*ed25519.PrivateKey)
		if !is {
			t.Fatalf("the key is a %T", parsed)
		}
		// The rest of what is in the file is public, or the same in all of them.
		world.add(what, key.Seed())
		if len(world.in(string(found.Data[field]))) == 0 {
			t.Fatal("the key is not found in its own file")
		}
	}
}

// refuse submits jobs that are not taken: what is wrong with them is told to who
// submits them, and to nobody else.
func (world *secretWorld) refuse(t *testing.T) {
	t.Helper()
	for kind, object := range both(2, waiting) {
		world.plant(object, false)
		value := world.newSecret(inRefused + " of kind " + kind)
		switch object := object.(type) {
		case *v2alpha1.TrainJob:
			object.Spec.Trainer.Env = []corev1.EnvVar{{Name: "not a name=", Value: value}}
		case *v2beta1.MPIJob:
			object.Spec.MPIReplicaSpecs[v2beta1.MPIReplicaTypeLauncher].Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "not a name=", Value: value}}
		}
		object.SetNamespace(world.ada.namespace)
		object.SetName("refused")
		if trainJob, is := object.(*v2alpha1.TrainJob); is {
			trainJob.Spec.RuntimeRef = v2alpha1.RuntimeRef{Kind: v2alpha1.RuntimeKindNamespaced, Name: "runtime"}
		}
		err := world.jobs[fetches].client.Create(t.Context(), object)
		if err == nil {
			t.Fatalf("a %s with a variable of that name is taken", kind)
		}
		world.look(t, "the refusal", err.Error())
		// Also where the server notes for its audit who has tried it.
		_, answer := world.server.curl(t, world.ada, "POST", fmt.Sprintf("/api/v1/namespaces/%s/%s", world.ada.namespace, plurals[kind]), []byte(asText(t, object)))
		world.look(t, "the server's refusal", answer)
	}
}

// lookIntoWorkers while there are some: keys are in the files of their volume, and not
// in an environment, on a command line, or anywhere else.
func (world *secretWorld) lookIntoWorkers(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ends-well-mpijob", "ends-well-trainjob"} {
		job := world.jobs[name]
		job.waitForLog("all ranks are up")
		for _, role := range []string{training.RoleWorker, training.RoleLauncher} {
			pod := job.pods(role)[0]
			inPod := func(script string) string {
				t.Helper()
				output, err := runInPod(job.namespace, pod.Name, script)
				if err != nil {
					t.Fatalf("%v: %s", err, output)
				}
				return output
			}
			world.look(t, "the environment of the "+role+"'s own process", inPod(`cat /proc/1/environ /proc/1/cmdline | tr '\0' '\n'`), inVariable, inSecretKey, inArgument)
			world.look(t, "all command lines of the "+role, inPod(`cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'; true`), inArgument)
			world.look(t, "the files of the "+role, inPod(recentFiles), inArgument)
		}
		for _, pod := range job.pods(training.RoleWorker) {
			// The first that hears of it may end the run before the second does.
			if output, err := runInPod(job.namespace, pod.Name, "touch /tmp/over"); err != nil {
				t.Logf("%v: %s", err, output)
			}
		}
	}
}

// recentFiles prints every file that is not the image's own, but for those of the
// volume that the keys come in, which Kubernetes mounts read-only.
const recentFiles = `
keys=$(grep -oE ' /[^ ]*(ssh|key)[^ ]* ' /proc/self/mountinfo | tr -d ' ' | sort -u)
echo "keys are at $keys"
skip="-path /proc -o -path /sys"
for key in $keys; do skip="$skip -o -path $key"; done
set -f
find / '(' $skip ')' -prune -o -type f -newermt '-1 day' -size -2048k -print0 2>/dev/null | xargs -0 -r cat 2>/dev/null
echo looked
`

func (world *secretWorld) untilEnded(t *testing.T) {
	t.Helper()
	for name, job := range world.jobs {
		if name == fetches {
			eventually.Succeeds(t, "its initializer tells what it does", func() error {
				if output, err := shell(logsOf(job, name)); err != nil || output == "" {
					return fmt.Errorf("%w: %q", err, output)
				}
				return nil
			})
			continue
		}
		ended := job.end(2 * time.Minute)
		want := training.PhaseFailed
		if strings.HasPrefix(name, "ends-well") {
			want = training.PhaseSucceeded
		}
		if ended.Phase != want {
			t.Errorf("%s is %s: %s", name, ended.Phase, ended.FailureMessage)
		}
		t.Logf("%s: %s", name, ended.FailureMessage)
	}
}

// lookAtObjects: what we write of a job, besides what Kubernetes is to start.
func (world *secretWorld) lookAtObjects(t *testing.T) {
	t.Helper()
	api, namespace := world.jobs[fetches].client, client.InNamespace(world.ada.namespace)
	var pods corev1.PodList
	var maps corev1.ConfigMapList
	var revisions appsv1.ControllerRevisionList
	for _, list := range []client.ObjectList{&pods, &maps, &revisions} {
		if err := api.List(t.Context(), list, namespace); err != nil {
			t.Fatal(err)
		}
	}
	for name, job := range world.jobs {
		job.refresh()
		world.look(t, "the status of "+name, statusText(t, job.object))
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		world.look(t, "the status of pod "+pod.Name, asText(t, pod.Status))
		world.look(t, "the labels and annotations of pod "+pod.Name, asText(t, pod.ObjectMeta))
		world.look(t, "the spec of pod "+pod.Name, asText(t, pod.Spec), inVariable, inArgument)
	}
	world.look(t, "the ConfigMaps", asText(t, maps.Items))
	world.look(t, "the kept runtimes", asText(t, revisions.Items))
}

func statusText(t *testing.T, object client.Object) string {
	t.Helper()
	switch object := object.(type) {
	case *v2alpha1.TrainJob:
		return asText(t, object.Status)
	case *v2beta1.MPIJob:
		return asText(t, object.Status)
	}
	t.Fatalf("%T is no job", object)
	return ""
}

func asText(t *testing.T, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// lookAtEverybodysEvents are those of all namespaces.
func (world *secretWorld) lookAtEverybodysEvents(t *testing.T) {
	t.Helper()
	world.look(t, "the events", kubectl(t, "get events -A -o json"))
}

// lookAtLogs are those of the operator and of the server, audit and all, and those of
// launchers and workers whose programs print nothing secret themselves.
func (world *secretWorld) lookAtLogs(t *testing.T, since time.Time) {
	t.Helper()
	for _, deployment := range []string{"trireme-operator", "trireme-server"} {
		world.look(t, "the log of "+deployment, kubectl(t, fmt.Sprintf("logs deployment/%s -n trireme-system --all-pods --all-containers --tail=-1 --since-time %s", deployment, since.UTC().Format(time.RFC3339))))
	}
	for name, job := range world.jobs {
		if strings.HasPrefix(name, "fails") || strings.HasPrefix(name, "aborts") {
			continue // Their programs print all that they know.
		}
		output, err := shell(logsOf(job, name))
		if err != nil {
			t.Logf("%s: %v", name, err) // Some pods are gone by now.
		}
		except := []string{}
		if name == "one-piece-trainjob" {
			except = []string{inArgument} // mpirun names the program that it does not find.
		}
		world.look(t, "what the pods of "+name+" print", output, except...)
	}
}

// logsOf is the line that prints what all pods of a job have printed.
func logsOf(job *theJob, name string) string {
	return fmt.Sprintf("bin/cluster kubectl logs -n %s -l %s=%s --all-containers --tail=-1 --prefix", job.namespace, training.LabelJobName, name)
}

func (world *secretWorld) lookAtMetrics(t *testing.T) {
	t.Helper()
	token, authority := world.metricsToken(t), authorityFile(t)
	for _, address := range podAddresses(t, "operator") {
		output, err := shell(fmt.Sprintf("curl --silent --show-error --fail %s --max-time 30 --header 'Authorization: Bearer %s'", operatorMetrics(authority, address), token))
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		world.look(t, "the operator's metrics", output)
	}
	for _, address := range podAddresses(t, "server") {
		output, err := shell("curl --silent --show-error --fail --max-time 30 http://" + address + ":8081/metrics")
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		world.look(t, "the server's metrics", output)
	}
}

// metricsToken is of somebody who may read metrics.
func (world *secretWorld) metricsToken(t *testing.T) string {
	t.Helper()
	name := "reader-" + world.ada.namespace
	kubectl(t, fmt.Sprintf("create clusterrolebinding %s --clusterrole=trireme-metrics-reader --serviceaccount=%s:default", name, world.ada.namespace))
	t.Cleanup(func() { _, _ = shell("bin/cluster kubectl delete clusterrolebinding " + name) })
	return strings.TrimSpace(kubectl(t, "create token default -n "+world.ada.namespace))
}

// lookAtServer asks for everything that can be read of the jobs, over REST, gRPC and as
// a stream. Where it is the job itself that is shown, it has what was written into it.
func (world *secretWorld) lookAtServer(t *testing.T) {
	t.Helper()
	_, document := world.server.curl(t, world.ada, "GET", "/openapi.json", nil)
	connection := world.server.dial(t)
	for name, job := range world.jobs {
		kind := map[bool]string{true: "MPIJob", false: "TrainJob"}[strings.HasSuffix(name, "mpijob")]
		for _, route := range surface.Routes(t, []byte(document)) {
			if route.Method != "GET" || strings.Contains(route.Path, "/watch/") || !strings.Contains(route.Path, "{name}") || !strings.Contains(route.Path, plurals[kind]) {
				continue
			}
			path, _ := route.In(job.namespace, name)
			_, answer := world.server.curl(t, world.ada, "GET", path, nil)
			world.look(t, "GET "+path, answer+" ", shownBy(route.Path)...)
		}
		for _, method := range surface.Methods(t, connection, world.ada.token) {
			what := string(method.Name())
			if isChange(what) || !strings.Contains(what, kind) && strings.Contains(what, "Job") {
				continue
			}
			answer, err := surface.Call(t, connection, world.ada.token, method, surface.Request(t, method, kind, job.namespace, name))
			except := []string{}
			if what == "Get"+kind || what == "List"+kind+"s" {
				except = written
			}
			world.look(t, what+" of "+name, fmt.Sprint(answer, err), except...)
		}
	}
	for _, plural := range plurals {
		socket, _, err := world.server.listen(t, world.ada, fmt.Sprintf("/api/v1/watch/namespaces/%s/%s", world.ada.namespace, plural), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = socket.SetReadDeadline(time.Now().Add(20 * time.Second))
		for synced := false; !synced; {
			_, message, err := socket.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			world.look(t, "a watch of "+plural, string(message))
			synced = strings.Contains(string(message), `"SYNCED"`)
		}
	}
}

// shownBy are the secrets that a path may show, because it shows the job as its user
// wrote it.
func shownBy(path string) []string {
	if strings.HasSuffix(path, "/{name}") {
		return written
	}
	return nil
}

func isChange(method string) bool {
	return slices.ContainsFunc([]string{"Create", "Delete", "Restart", "Suspend", "Resume", "Watch"}, func(verb string) bool { return strings.HasPrefix(method, verb) })
}

// lookAtOdh: what the command line prints, also where it tells of every request.
func (world *secretWorld) lookAtOdh(t *testing.T) {
	t.Helper()
	asAda := &border{kubeconfig: kubeconfigOf(t, world.ada)}
	if err := buildOdh(); err != nil {
		t.Fatal(err)
	}
	run := func(line string, except ...string) {
		t.Helper()
		_, output := asAda.runAs(t, "bin/odh", "", append(strings.Fields(line), "-n", world.ada.namespace)...)
		world.look(t, "odh "+line, output, except...)
	}
	run("training list -o wide")
	run("training list -v 9", written...) // It shows what the cluster answers, which are the jobs.
	run("top")
	run("migrate status")
	run("migrate --from-cluster one-piece-mpijob", written...)
	for name := range world.jobs {
		kind := map[bool]string{true: "mpijob", false: "trainjob"}[strings.HasSuffix(name, "mpijob")]
		run(kind + " describe " + name)
		run(kind + " diagnose " + name)
		run(kind + " get " + name)
	}
	run("mpijob get fails-mpijob -o yaml", written...)
	run("mpijob describe fails-mpijob -v 9", written...)
	run("mpijob logs one-piece-mpijob")
	run("preflight -v 9", written...)
}

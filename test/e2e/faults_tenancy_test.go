// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// forLong is a program that is at work while others try to get at it. What it prints
// is for its owner.
const forLong = `
import time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
if MPI.COMM_WORLD.rank == 0:
    print("all ranks are up, INSIDE", flush=True)
time.sleep(900)
`

// border is between two namespaces: in one is somebody with all the rights that can be
// had there, in the other are somebody else's jobs at work.
type border struct {
	server   *theServer
	intruder user
	// kubeconfig is the intruder's.
	kubeconfig string
	owner      user
	// jobs of the owner's, by their kind.
	jobs map[string]*theJob
	// inside is in everything of the owner's, and nowhere else: nobody else may get to
	// see it.
	inside string
}

// absent is a name that nothing has. Who asks for it must get the same answer as for
// one that is there.
const absent = "no-such-thing"

// newBorder has the owner's jobs at work.
func newBorder(t *testing.T) *border {
	t.Helper()
	found := &border{server: reachServer(t), intruder: newUser(t), owner: newUser(t), jobs: map[string]*theJob{}, inside: "inside-" + strings.ToLower(rand.Text())}
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	giveAllRights(t, api, found.intruder)
	found.kubeconfig = kubeconfigOf(t, found.intruder)
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, StringData: map[string]string{"password": found.inside}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}, Data: map[string]string{"plan": found.inside}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "hidden"}},
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "hidden", Annotations: map[string]string{"note": found.inside}}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("77")}}},
	} {
		object.SetNamespace(found.owner.namespace)
		if err := api.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	hidden := runtimeFor(found.owner.namespace, "OpenMPI")
	hidden.Name, hidden.Annotations = "hidden", map[string]string{"note": found.inside}
	if err := api.Create(t.Context(), hidden); err != nil {
		t.Fatal(err)
	}
	for kind, object := range both(2, strings.ReplaceAll(forLong, "INSIDE", found.inside)) {
		object.SetName("hidden-" + strings.ToLower(kind))
		object.SetAnnotations(map[string]string{"note": found.inside})
		found.jobs[kind] = submitTo(t, api, found.owner.namespace, object)
	}
	for _, job := range found.jobs {
		job.waitForLog("all ranks are up")
		job.until("the job runs", time.Minute, func(progress training.Progress) bool { return progress.Phase == training.PhaseRunning })
	}
	return found
}

// giveAllRights binds every role that we install for people, and the cluster's own for
// a namespace's administrator, in the user's namespace.
func giveAllRights(t *testing.T, api client.Client, to user) {
	t.Helper()
	roles := []string{"admin"}
	for _, document := range deployed.UserRoles(t) {
		if document.GetKind() == "ClusterRole" {
			roles = append(roles, document.GetName())
		}
	}
	if len(roles) < 6 {
		t.Fatalf("only the roles %v are for people", roles)
	}
	for _, role := range roles {
		if err := api.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: to.namespace, Name: "scientist-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: to.namespace, Name: "scientist"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// kubeconfigOf is a file with which programs talk to the cluster as a user.
func kubeconfigOf(t *testing.T, of user) string {
	t.Helper()
	config, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u","namespace":%q}}],
"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],"users":[{"name":"u","user":{"token":%q}}]}`,
		of.namespace, config.Host, base64.StdEncoding.EncodeToString(authorityOf(t, config)), of.token)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func authorityOf(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	if len(config.CAData) > 0 {
		return config.CAData
	}
	content, err := os.ReadFile(config.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// nameFor is what a path or a command of a kind asks for; where it is for both kinds,
// an MPIJob.
func nameFor(what string) string {
	switch {
	case strings.Contains(what, "runtime"):
		return "hidden"
	case strings.Contains(strings.ToLower(what), "trainjob"):
		return "hidden-trainjob"
	default:
		return "hidden-mpijob"
	}
}

// wantSilence fails the test if an answer has anything of the owner's in it.
func (border *border) wantSilence(t *testing.T, what, answer string) {
	t.Helper()
	if strings.Contains(answer, border.inside) {
		t.Errorf("%s tells what is another's:\n%.3000s", what, answer)
	}
}

// wantAlike fails the test if answers about something that is there and about
// something that is not differ in more than its name.
func (border *border) wantAlike(t *testing.T, what, name, there, missing string) {
	t.Helper()
	border.wantSilence(t, what, there)
	if withoutAges(regexp.MustCompile(`\b`+name+`\b`).ReplaceAllString(there, "X")) != withoutAges(strings.ReplaceAll(missing, absent, "X")) {
		t.Errorf("%s tells whether %s is there:\n%.2000s\nand of what is not\n%.2000s", what, name, there, missing)
	}
}

// withoutAges lets answers of different seconds be compared.
func withoutAges(answer string) string {
	return regexp.MustCompile(`\b(\d+[dhms])+\b`).ReplaceAllString(answer, "AGE")
}

// A user with every right of one namespace sees and touches nothing of another, by no
// way that there is.
func TestNobodyReachesIntoAnotherNamespace(t *testing.T) {
	border := newBorder(t)
	before := border.snapshot(t)
	eventually.Succeeds(t, "nothing is new of the owner's", func() error {
		time.Sleep(time.Second)
		last := before
		if before = border.snapshot(t); !maps.Equal(before, last) {
			return errors.New(difference(last, before))
		}
		return nil
	})
	t.Run("API server", border.tryAPIServer)
	t.Run("kubectl", border.tryKubectl)
	t.Run("odh", border.tryOdh)
	t.Run("REST", border.tryREST)
	t.Run("gRPC", border.tryRPC)
	t.Run("WebSocket", border.tryWebSocket)
	t.Run("all namespaces", border.tryAllNamespaces)
	t.Run("paths", border.tryPaths)
	t.Run("names of others", border.tryImpersonation)
	t.Run("tokens", border.tryTokens)
	t.Run("metrics", border.tryMetrics)
	t.Run("jobs that refer to another namespace", border.tryReferences)
	t.Run("SSH", border.trySSH)
	if after := border.snapshot(t); !maps.Equal(before, after) {
		t.Errorf("what is the owner's has changed:\n%s", difference(before, after))
	}
	for kind, job := range border.jobs {
		if progress := job.refresh(); progress.Phase != training.PhaseRunning {
			t.Errorf("the owner's %s is %s: %s", kind, progress.Phase, progress.FailureMessage)
		}
	}
}

// renewed are written by the cluster's own controllers, whenever a pod is slow to say
// that it is well.
var renewed = []string{"events", "leases", "endpoints", "endpointslices"}

// snapshot is every object of the owner's namespace, with all of it that is not status,
// which others may write.
func (border *border) snapshot(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, kind := range namespacedResources(t) {
		if strings.Contains(kind.Name, "/") || !slices.Contains(kind.Verbs, "list") || slices.Contains(renewed, kind.Name) {
			continue
		}
		for _, item := range border.itemsOf(t, kind) {
			item.ManagedFields = nil
			if item.Generation > 0 {
				item.ResourceVersion = ""
			}
			content, err := json.Marshal(item.ObjectMeta)
			if err != nil {
				t.Fatal(err)
			}
			found[kind.Name+" "+item.Name] = string(content)
		}
	}
	if len(found) < 20 {
		t.Fatalf("the owner has only %d objects", len(found))
	}
	return found
}

func difference(before, after map[string]string) string {
	var lines []string
	for name, version := range before {
		if after[name] != version {
			lines = append(lines, fmt.Sprintf("%s was %s and is %q", name, version, after[name]))
		}
	}
	for name := range after {
		if before[name] == "" {
			lines = append(lines, name+" is new")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// namespacedResources are all that the API server has, with parts such as pods/exec.
func namespacedResources(t *testing.T) (found []metav1.APIResource) {
	t.Helper()
	client, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range list.APIResources {
			if kind.Namespaced {
				// Parts may have a version of their own, such as that of Scale.
				kind.Group, kind.Version = version.Group, version.Version
				found = append(found, kind)
			}
		}
	}
	return found
}

// itemsOf are the owner's objects of a kind, as an administrator sees them.
func (border *border) itemsOf(t *testing.T, kind metav1.APIResource) []metav1.PartialObjectMetadata {
	t.Helper()
	api, err := jobClient()
	if err != nil {
		t.Fatal(err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind + "List"})
	if err := api.List(t.Context(), list, client.InNamespace(border.owner.namespace)); err != nil {
		t.Fatalf("list %s: %v", kind.Name, err)
	}
	return list.Items
}

var httpMethods = map[string][]string{
	"get": {"GET"}, "list": {"GET"}, "watch": {"GET"}, "create": {"POST"}, "update": {"PUT"}, "patch": {"PATCH"}, "delete": {"DELETE"}, "deletecollection": {"DELETE"},
}

// tryAPIServer does everything that the API server can do with everything it has, but
// in the owner's namespace.
func (border *border) tryAPIServer(t *testing.T) {
	asIntruder := border.clientOf(t, border.intruder.token)
	tried := 0
	for _, kind := range namespacedResources(t) {
		name := absent
		plural, part, isPart := strings.Cut(kind.Name, "/")
		if !isPart && slices.Contains(kind.Verbs, "list") {
			for _, item := range border.itemsOf(t, kind) {
				if !strings.Contains(border.intruder.name, item.Name) {
					name = item.Name
				}
			}
		} else if isPart && (plural == "pods" || plural == "serviceaccounts" || plural == "mpijobs" || plural == "trainjobs") {
			name = map[string]string{"pods": border.jobs["MPIJob"].pods("worker")[0].Name, "serviceaccounts": "hidden", "mpijobs": "hidden-mpijob", "trainjobs": "hidden-trainjob"}[plural]
		}
		base := "/apis/" + kind.Group + "/" + kind.Version
		if kind.Group == "" {
			base = "/api/" + kind.Version
		}
		for _, verb := range kind.Verbs {
			for _, method := range httpMethods[verb] {
				tried++
				what := fmt.Sprintf("%s of %s.%s", verb, kind.Name, kind.Group)
				all := base + "/namespaces/" + border.owner.namespace + "/" + plural
				switch {
				case verb == "list" || verb == "watch":
					border.wantForbidden(t, what, asIntruder.ask(t, method, all+"?timeoutSeconds=1&watch="+fmt.Sprint(verb == "watch"), ""))
					border.wantForbidden(t, what+" in all namespaces", asIntruder.ask(t, method, base+"/"+plural+"?timeoutSeconds=1&watch="+fmt.Sprint(verb == "watch"), ""))
				case verb == "deletecollection", verb == "create" && !isPart:
					border.wantForbidden(t, what, asIntruder.ask(t, method, all, "{}"))
				default:
					part := strings.TrimSuffix("/"+part, "/")
					there := asIntruder.ask(t, method, all+"/"+name+part, "{}")
					border.wantForbidden(t, what, there)
					border.wantAlike(t, what, name, there.body, asIntruder.ask(t, method, all+"/"+absent+part, "{}").body)
				}
			}
		}
	}
	if tried < 200 {
		t.Errorf("only %d requests were tried", tried)
	}
	t.Logf("%d requests", tried)
}

// httpUser is a user who writes requests by hand.
type httpUser struct {
	client *http.Client
	host   string
}

type httpAnswer struct {
	code int
	body string
}

func (border *border) clientOf(t *testing.T, token string) *httpUser {
	t.Helper()
	config, err := connection()
	if err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.BearerToken = token
	made, err := rest.HTTPClientFor(anonymous)
	if err != nil {
		t.Fatal(err)
	}
	return &httpUser{client: made, host: config.Host}
}

func (user *httpUser) ask(t *testing.T, method, path, body string) httpAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, user.host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := user.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return httpAnswer{response.StatusCode, string(content)}
}

func (border *border) wantForbidden(t *testing.T, what string, answer httpAnswer) {
	t.Helper()
	border.wantSilence(t, what, answer.body)
	if answer.code != http.StatusForbidden || !strings.Contains(answer.body, border.intruder.name) {
		t.Errorf("%s: %d\n%.1000s", what, answer.code, answer.body)
	}
}

// runAs runs a program with the intruder's kubeconfig.
func (border *border) runAs(t *testing.T, program string, stdin string, arguments ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir, command.Stdin = repository, strings.NewReader(stdin)
	command.Env = append(os.Environ(), "KUBECONFIG="+border.kubeconfig)
	content, err := command.CombinedOutput()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%s %v: %v", program, arguments, err)
	}
	return command.ProcessState.ExitCode(), string(content)
}

// tryKubectl does what a person would try first.
func (border *border) tryKubectl(t *testing.T) {
	worker, launcher := border.jobs["MPIJob"].pods("worker")[0].Name, border.jobs["TrainJob"].pods("launcher")[0].Name
	lines := []string{
		"get mpijobs,trainjobs,trainingruntimes,secrets,configmaps,events -o yaml", "get secret hidden-mpijob-ssh-key -o yaml", "describe mpijob hidden-mpijob", "describe quota",
		"logs " + worker, "logs " + launcher, "logs -l training.kubeflow.org/job-name=hidden-mpijob", "exec " + worker + " -- cat /etc/hostname", "attach " + worker,
		"port-forward pod/" + worker + " 0:2222", "cp " + worker + ":/etc/hostname /dev/null", "debug " + worker + " --image=trireme.local/openmpi:5 -- true",
		"top pod", "delete mpijob hidden-mpijob --wait=false", "delete trainjobs --all --wait=false", "annotate trainjob hidden-trainjob a=b",
		`patch mpijob hidden-mpijob --type=merge -p {"spec":{"runPolicy":{"suspend":true}}}`,
		"patch mpijob hidden-mpijob --subresource=status --type=merge -p {}", "create token hidden", "create configmap mine", "create rolebinding mine --clusterrole=admin --user=me",
	}
	for _, line := range lines {
		code, output := border.runAs(t, clusterTool(), "", append([]string{"kubectl", "--kubeconfig", border.kubeconfig, "--namespace", border.owner.namespace}, strings.Fields(line)...)...)
		border.wantSilence(t, line, output)
		if lower := strings.ToLower(output); code == 0 || !strings.Contains(lower, "forbidden") && !strings.Contains(lower, "metrics api not available") {
			t.Errorf("kubectl %s: exit code %d\n%.1000s", line, code, output)
		}
	}
	for _, line := range []string{"get mpijobs,trainjobs,secrets,pods -A", "logs deployment/trireme-server -n trireme-system", "logs deployment/trireme-operator -n trireme-system",
		"get secrets -n trireme-system", "get mpijobs -n " + border.owner.namespace + " --as=" + border.owner.name, "get clustertrainingruntimes --as-group=system:masters --as=me", "get nodes", "get namespaces"} {
		code, output := border.runAs(t, clusterTool(), "", append([]string{"kubectl", "--kubeconfig", border.kubeconfig}, strings.Fields(line)...)...)
		border.wantSilence(t, line, output)
		if code == 0 || !strings.Contains(strings.ToLower(output), "forbidden") {
			t.Errorf("kubectl %s: exit code %d\n%.1000s", line, code, output)
		}
	}
	if code, output := border.runAs(t, clusterTool(), "", "kubectl", "--kubeconfig", border.kubeconfig, "get", "mpijobs,trainjobs,trainingruntimes,resourcequotas,secrets"); code != 0 {
		t.Errorf("in their own namespace the user may nothing: %s", output)
	}
}

// withoutCluster are commands of odh that ask the cluster for nothing by themselves. What
// servers answer is what REST and gRPC are tried for.
var withoutCluster = []string{"odh completion", "odh help", "odh version", "odh server", "odh dashboard", "odh runtime validate"}

// furtherArguments are what commands need besides names, by the end of their path.
var furtherArguments = map[string][]string{
	"mpijob create": {"--image", "example", "--", "true"}, "create mpijob": {"--image", "example", "--", "true"},
	"trainjob create": {"--runtime", "mpi-openmpi-cpu", "--image", "example", "--", "true"}, "create trainjob": {"--runtime", "mpi-openmpi-cpu", "--image", "example", "--", "true"},
	"odh migrate": {"--from-cluster"}, "runtime test": {"--timeout", "5s"}, "history compare": {"another"},
}

// tryOdh runs every command of odh against the owner's namespace.
func (border *border) tryOdh(t *testing.T) {
	if err := buildOdh(); err != nil {
		t.Fatal(err)
	}
	commands := border.commands(t, "odh")
	if len(commands) < 30 {
		t.Fatalf("odh has only the commands %v", commands)
	}
	for path, usage := range commands {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			name := nameFor(path)
			code, there := border.odh(t, path, usage, name)
			_, missing := border.odh(t, path, usage, absent)
			border.wantAlike(t, path, name, there, missing)
			words := regexp.MustCompile(`(?i)you may not|forbidden|cannot list`)
			if path == "odh preflight" || path == "odh runtime list" {
				// They tell what one may not do, and of the cluster's own runtimes.
				code = max(code, 1)
			}
			if code == 0 || !words.MatchString(there) {
				t.Errorf("exit code %d\n%s", code, there)
			}
		})
	}
}

// odh runs a command with what its usage asks for.
func (border *border) odh(t *testing.T, path, usage, name string) (int, string) {
	t.Helper()
	arguments := append(strings.Fields(path)[1:], "--namespace", border.owner.namespace, "--request-timeout", "10s")
	if argument.MatchString(usage) {
		arguments = append(arguments, name)
	}
	if strings.HasPrefix(path, "odh history ") {
		arguments = append(arguments, "--trireme-server", "https://"+border.server.address, "--trireme-server-ca", border.server.authority)
	}
	for end, more := range furtherArguments {
		if strings.HasSuffix(path, end) {
			arguments = append(arguments, more...)
		}
	}
	return border.runAs(t, "bin/odh", "", arguments...)
}

var (
	helpCommands = regexp.MustCompile(`(?s)Available Commands:\n(.*?)\n\n`)
	helpUsage    = regexp.MustCompile(`Usage:\n  (.*)`)
	argument     = regexp.MustCompile(`\b(NAME|JOB|RUNTIME)\b`)
)

// commands are all below a command that do something, with their usage, as its own
// help tells.
func (border *border) commands(t *testing.T, path string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if slices.Contains(withoutCluster, path) {
		return found
	}
	_, help := border.runAs(t, "bin/odh", "", append(strings.Fields(path)[1:], "--help")...)
	usage := helpUsage.FindStringSubmatch(help)
	below := helpCommands.FindStringSubmatch(help)
	if usage == nil {
		t.Fatalf("%s has no usage:\n%s", path, help)
	}
	if below == nil || strings.Contains(usage[1], "NAME") {
		found[path] = usage[1]
	}
	if below != nil {
		for line := range strings.Lines(below[1] + "\n") {
			maps.Copy(found, border.commands(t, path+" "+strings.Fields(line)[0]))
		}
	}
	return found
}

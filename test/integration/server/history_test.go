// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/player"
)

// kubelet serves the logs of pods to the API server, as the kubelet of a node does.
type kubelet struct {
	node string

	mutex sync.Mutex
	logs  map[string][]string
	// ended are the pods whose containers have ended, and changed is closed at every change.
	ended   map[string]bool
	changed chan struct{}
}

// startKubelet starts one, with its node.
func (cluster *cluster) startKubelet(t *testing.T) *kubelet {
	t.Helper()
	k := &kubelet{logs: map[string][]string{}, ended: map[string]bool{}, changed: make(chan struct{})}
	server := httptest.NewTLSServer(k)
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	address := server.Listener.Addr().(*net.TCPAddr)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	if err := cluster.client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address.IP.String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(address.Port)
	if err := cluster.client.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	k.node = node.Name
	return k
}

// print adds lines to the log of a pod.
func (k *kubelet) print(pod *corev1.Pod, lines ...string) {
	k.change(func() {
		for _, line := range lines {
			k.logs[pod.Name] = append(k.logs[pod.Name], time.Now().UTC().Format(time.RFC3339Nano)+" "+line+"\n")
		}
	})
}

func (k *kubelet) change(change func()) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	change()
	close(k.changed)
	k.changed = make(chan struct{})
}

// ServeHTTP serves /containerLogs/NAMESPACE/POD/CONTAINER.
func (k *kubelet) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	parts := strings.Split(request.URL.Path, "/")
	if len(parts) != 5 || parts[1] != "containerLogs" {
		http.NotFound(writer, request)
		return
	}
	for sent := 0; ; {
		k.mutex.Lock()
		lines, ended, changed := k.logs[parts[3]][sent:], k.ended[parts[3]], k.changed
		k.mutex.Unlock()
		for _, line := range lines {
			_, _ = fmt.Fprint(writer, line)
		}
		sent += len(lines)
		if _ = http.NewResponseController(writer).Flush(); ended || request.URL.Query().Get("follow") != "true" {
			return
		}
		select {
		case <-changed:
		case <-request.Context().Done():
			return
		}
	}
}

// keeper is the component that keeps the history.
type keeper struct {
	cluster   *cluster
	arguments []string
	// url is where it serves, and directory where the server finds its token and CA.
	url, directory, records string
	kubeconfig              string
	log                     *deployed.Lines
	command                 *exec.Cmd
}

// startHistory starts it with the role that it is deployed with. Its arguments replace those
// of the chart.
func (cluster *cluster) startHistory(t *testing.T, arguments ...string) *keeper {
	t.Helper()
	port := deployed.FreePort(t)
	k := &keeper{cluster: cluster, url: fmt.Sprintf("https://127.0.0.1:%d", port), directory: t.TempDir(), records: t.TempDir(), log: &deployed.Lines{}}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	k.write(t, "ca.crt", certificate)
	k.write(t, "tls.key", key)
	k.write(t, "token", []byte(cluster.tokenOfServer(t)))
	account := "system:serviceaccount:" + deployed.Namespace + ":trireme-history"
	user, err := cluster.environment.AddUser(envtest.User{Name: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	k.kubeconfig = deployed.Write(t, "kubeconfig", kubeconfig)
	k.arguments = append([]string{
		"history", "--address", fmt.Sprintf("127.0.0.1:%d", port), "--probe-address", fmt.Sprintf("127.0.0.1:%d", deployed.FreePort(t)),
		"--tls-cert-file", filepath.Join(k.directory, "ca.crt"), "--tls-key-file", filepath.Join(k.directory, "tls.key"),
		"--directory", k.records, "--spool-directory", filepath.Join(t.TempDir(), "jobs"), "--settle", "100ms",
	}, arguments...)
	k.start(t)
	t.Cleanup(k.stop)
	return k
}

func (k *keeper) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(k.directory, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (k *keeper) start(t *testing.T) {
	t.Helper()
	k.command = exec.Command(serverProgram, k.arguments...)
	k.command.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig)
	k.command.Stderr = k.log
	if err := k.command.Start(); err != nil {
		t.Fatal(err)
	}
}

// untilFollowed waits until the history has read a line of a job that runs.
func (k *keeper) untilFollowed(t *testing.T, r *ran) {
	t.Helper()
	eventually.Succeeds(t, "a line is read", func() error {
		spools, err := filepath.Glob(filepath.Join(k.arguments[slices.Index(k.arguments, "--spool-directory")+1], "*"+string(r.job.UID)+"*"))
		if err == nil && len(spools) == 0 {
			err = fmt.Errorf("there is no spool\n%s", k.log)
		}
		return err
	})
}

func (k *keeper) stop() {
	if k.command != nil {
		_ = k.command.Process.Signal(syscall.SIGTERM)
		_ = k.command.Wait()
		k.command = nil
	}
}

// tokenOfServer is a token as the kubelet writes it for the server.
func (cluster *cluster) tokenOfServer(t *testing.T) string {
	t.Helper()
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: deployed.Namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: deployed.Namespace, Name: "trireme-server"}},
	} {
		if err := cluster.client.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return cluster.tokenFor(t, deployed.Namespace, "trireme-server", history.Audience)
}

func (cluster *cluster) tokenFor(t *testing.T, namespace, account string, audiences ...string) string {
	t.Helper()
	request, err := cluster.typed.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// startServerWith starts the server with the history.
func (k *keeper) startServer(t *testing.T) *program {
	t.Helper()
	return k.cluster.startServer(t, "--history-url", k.url, "--history-directory", k.directory)
}

// containerID of each launcher.
const containerID = "containerd://launcher"

// ran is a job that a person has created, and its launcher.
type ran struct {
	*player.Player
	job      *v2beta1.MPIJob
	launcher *corev1.Pod
	kubelet  *kubelet
}

// run starts a job, as the operator and a kubelet do.
func (cluster *cluster) run(t *testing.T, kubelet *kubelet, namespace, name string) *ran {
	t.Helper()
	r := &ran{Player: &player.Player{TB: t, Client: cluster.client, Namespace: namespace}, job: player.MPIJob(name), kubelet: kubelet}
	r.Create(r.job)
	r.launcher = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-launcher-x", Labels: map[string]string{
			training.LabelJobName: name, training.LabelJobType: training.JobTypeMPIJob, training.LabelReplicaType: training.RoleLauncher,
		}},
		Spec: corev1.PodSpec{NodeName: kubelet.node, Containers: []corev1.Container{{Name: "launcher", Image: "registry.example/train:1"}}},
	}
	r.Create(r.launcher)
	r.StartContainers(r.launcher)
	r.SetStatus(r.launcher, func(status *corev1.PodStatus) { status.ContainerStatuses[0].ContainerID = containerID })
	r.setStatus(training.PhaseRunning)
	return r
}

func (r *ran) setStatus(phase training.Phase) {
	r.Helper()
	r.MustGet(r.job, r.job.Name)
	now := metav1.Now()
	r.job.Status.Phase = phase
	if r.job.Status.StartTime == nil {
		r.job.Status.StartTime = &now
	}
	if phase != training.PhaseRunning {
		r.job.Status.CompletionTime = &now
	}
	if err := r.Client.Status().Update(context.Background(), r.job); err != nil {
		r.Fatal(err)
	}
}

// finish ends the launcher and the job.
func (r *ran) finish(code int32, phase training.Phase) {
	r.Helper()
	r.kubelet.change(func() { r.kubelet.ended[r.launcher.Name] = true })
	r.Exit(r.launcher, code, "")
	// Without an ID, the container was never started.
	r.SetStatus(r.launcher, func(status *corev1.PodStatus) { status.ContainerStatuses[0].State.Terminated.ContainerID = containerID })
	r.setStatus(phase)
}

// remove deletes the job and its pod.
func (r *ran) remove() {
	r.Helper()
	r.Delete(r.launcher, client.GracePeriodSeconds(0))
	r.Delete(r.job)
}

func historyURL(server *program, namespace string, parts ...string) string {
	return strings.Join(append([]string{server.url, "api/v1/namespaces", namespace, "history/mpijobs"}, parts...), "/")
}

// listed are the records of a namespace.
func listed(t *testing.T, server *program, person *person) (list history.RecordList) {
	t.Helper()
	got := ask(t, "GET", historyURL(server, person.namespace), person.token, nil)
	if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.code != http.StatusOK {
		t.Fatalf("%d %s: %v", got.code, got.body, err)
	}
	return list
}

// untilRecorded waits for the record of a job.
func (r *ran) untilRecorded(t *testing.T, k *keeper, server *program, person *person) history.Summary {
	t.Helper()
	var found history.Summary
	eventually.Succeeds(t, "the job is in the history", func() error {
		got := ask(t, "GET", historyURL(server, person.namespace), person.token, nil)
		var list history.RecordList
		if err := json.Unmarshal([]byte(got.body), &list); err != nil {
			return err
		}
		index := slices.IndexFunc(list.Items, func(one history.Summary) bool { return one.UID == r.job.UID })
		if index < 0 {
			return fmt.Errorf("not among %s\n%s", got.body, k.log)
		}
		found = list.Items[index]
		return nil
	})
	return found
}

// A job that has finished and is deleted keeps its record, its log and each rank's lines.
func TestHistoryOutlivesTheJob(t *testing.T) {
	cluster := sharedCluster.For(t)
	ada, kubelet, keeper := cluster.person(t, "ada"), cluster.startKubelet(t), cluster.startHistory(t)
	server := keeper.startServer(t)
	bert := cluster.run(t, kubelet, ada.namespace, "bert")
	bert.Create(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "bert.1"}, Type: corev1.EventTypeWarning, Reason: "Slow", Message: "a node is slow", LastTimestamp: metav1.Now(),
		InvolvedObject: corev1.ObjectReference{Kind: "MPIJob", Namespace: ada.namespace, Name: "bert", UID: bert.job.UID},
	})
	kubelet.print(bert.launcher, "[1,0]<stdout>:I am rank 0", "[1,3]<stdout>:I am rank 3", "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY")
	kubelet.print(bert.launcher, "[1,3]<stdout>:rank 3 again")
	bert.finish(0, training.PhaseSucceeded)
	summary := bert.untilRecorded(t, keeper, server, ada)
	bert.remove()

	if summary.State != "Succeeded" || summary.Deleted || summary.Name != "bert" || summary.LogLines != 4 || summary.OmittedLines != 0 || summary.LogError != "" {
		t.Errorf("the summary is %+v\n%s", summary, keeper.log)
	}
	var record struct {
		Job    v2beta1.MPIJob          `json:"job"`
		Events []history.RecordedEvent `json:"events"`
	}
	got := ask(t, "GET", historyURL(server, ada.namespace, "bert"), ada.token, nil)
	if err := json.Unmarshal([]byte(got.body), &record); err != nil {
		t.Fatalf("%d %s: %v", got.code, got.body, err)
	}
	if record.Job.UID != bert.job.UID || record.Job.Kind != "MPIJob" || record.Job.Status.Phase != training.PhaseSucceeded || *record.Job.Spec.MPIReplicaSpecs["Worker"].Replicas != 2 {
		t.Errorf("the job in the record is %s", got.body)
	}
	if len(record.Events) != 1 || record.Events[0].Reason != "Slow" || record.Events[0].Object != "MPIJob/bert" {
		t.Errorf("the events in the record are %+v", record.Events)
	}
	all := ask(t, "GET", historyURL(server, ada.namespace, string(bert.job.UID), "logs"), ada.token, nil)
	if all.code != http.StatusOK || strings.Contains(all.body, "wJalr") || !strings.Contains(all.body, "AWS_SECRET_ACCESS_KEY=[redacted]") || strings.Count(all.body, "\n") != 4 {
		t.Errorf("the log is %d %s", all.code, all.body)
	}
	ofRank := ask(t, "GET", historyURL(server, ada.namespace, "bert", "logs?rank=3"), ada.token, nil)
	if want := "[1,3]<stdout>:I am rank 3\n[1,3]<stdout>:rank 3 again\n"; ofRank.body != want {
		t.Errorf("the lines of rank 3 are %q, want %q", ofRank.body, want)
	}
	streamed := ask(t, "GET", historyURL(server, ada.namespace, "bert", "logs?rank=3"), ada.token, nil, "Accept", "text/event-stream")
	if strings.Count(streamed.body, `"type":"LOG"`) != 2 || !strings.Contains(streamed.body, `"podType":"launcher"`) || !strings.Contains(streamed.body, `"rank":3`) {
		t.Errorf("the stream of rank 3 is %q", streamed.body)
	}
	if missing := ask(t, "GET", historyURL(server, ada.namespace, "gpt"), ada.token, nil); missing.code != http.StatusNotFound {
		t.Errorf("another name: %d %s", missing.code, missing.body)
	}

	// Deletion on request reaches the store, and is in the audit log.
	if deleted := ask(t, "DELETE", historyURL(server, ada.namespace, "bert"), ada.token, nil); deleted.code != http.StatusNoContent {
		t.Errorf("the deletion: %d %s", deleted.code, deleted.body)
	}
	if list := listed(t, server, ada); len(list.Items) != 0 {
		t.Errorf("after the deletion: %+v", list.Items)
	}
	if files, err := os.ReadDir(keeper.records); err != nil || len(files) != 0 {
		t.Errorf("after the deletion, the store has %v %v", files, err)
	}
	if lines := server.audit.About(t, "bert"); len(lines) != 1 || lines[0]["verb"] != "delete" {
		t.Errorf("the audit has %v", lines)
	}
}

// A job that is deleted while it runs keeps the lines that it has printed.
func TestHistoryOfDeletedJobs(t *testing.T) {
	cluster := sharedCluster.For(t)
	ada, kubelet, keeper := cluster.person(t, "ada"), cluster.startKubelet(t), cluster.startHistory(t)
	server := keeper.startServer(t)
	bert := cluster.run(t, kubelet, ada.namespace, "bert")
	kubelet.print(bert.launcher, "before the deletion")
	keeper.untilFollowed(t, bert)
	bert.remove()
	if summary := bert.untilRecorded(t, keeper, server, ada); !summary.Deleted || summary.State != "Running" || summary.LogLines != 1 {
		t.Errorf("the summary is %+v\n%s", summary, keeper.log)
	}
}

// What finishes while the history is down is recorded when it is back, while the job exists.
func TestHistoryCatchesUp(t *testing.T) {
	cluster := sharedCluster.For(t)
	ada, kubelet, keeper := cluster.person(t, "ada"), cluster.startKubelet(t), cluster.startHistory(t)
	server := keeper.startServer(t)
	bert, gpt := cluster.run(t, kubelet, ada.namespace, "bert"), cluster.run(t, kubelet, ada.namespace, "gpt")
	kubelet.print(bert.launcher, "one")
	bert.finish(1, training.PhaseFailed)
	bert.untilRecorded(t, keeper, server, ada)
	keeper.stop()
	kubelet.print(gpt.launcher, "two", "three")
	gpt.finish(0, training.PhaseSucceeded)
	if down := ask(t, "GET", historyURL(server, ada.namespace), ada.token, nil); down.code != http.StatusServiceUnavailable {
		t.Errorf("without the history: %d %s", down.code, down.body)
	}
	keeper.start(t)
	eventually.Succeeds(t, "the history is back", func() error {
		if back := ask(t, "GET", historyURL(server, ada.namespace), ada.token, nil); back.code != http.StatusOK {
			return fmt.Errorf("%d %s", back.code, back.body)
		}
		return nil
	})
	if summary := gpt.untilRecorded(t, keeper, server, ada); summary.LogLines != 2 || summary.State != "Succeeded" {
		t.Errorf("the summary is %+v", summary)
	}
	none := ask(t, "GET", strings.Replace(historyURL(server, ada.namespace), "mpijobs", "trainjobs", 1), ada.token, nil)
	if !strings.Contains(none.body, `"items":[]`) {
		t.Errorf("a list without records is %s", none.body)
	}
	if list := listed(t, server, ada); list.Total != 2 {
		t.Errorf("the records are %+v", list.Items)
	}
}

// Records belong to who may list the jobs, logs to who may read those of pods, and nothing
// to a namespace that only has the same name.
func TestHistoryAccess(t *testing.T) {
	cluster := sharedCluster.For(t)
	ada, bob, kubelet, keeper := cluster.person(t, "ada"), cluster.person(t, "bob"), cluster.startKubelet(t), cluster.startHistory(t)
	server := keeper.startServer(t)
	bert := cluster.run(t, kubelet, ada.namespace, "bert")
	kubelet.print(bert.launcher, "secret results")
	bert.finish(0, training.PhaseSucceeded)
	bert.untilRecorded(t, keeper, server, ada)
	cluster.allow(t, ada.namespace, "reader", rbacv1.PolicyRule{APIGroups: []string{"kubeflow.org"}, Resources: []string{"mpijobs"}, Verbs: []string{"get", "list"}})
	reader := cluster.tokenFor(t, ada.namespace, "reader")
	eventually.Succeeds(t, "the reader may list jobs", func() error {
		if got := ask(t, "GET", server.url+"/api/v1/namespaces/"+ada.namespace+"/mpijobs", reader, nil); got.code != http.StatusOK {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	for name, tc := range map[string]struct {
		token, method string
		parts         []string
		want          int
	}{
		"another user lists":      {bob.token, "GET", nil, 403},
		"another user shows":      {bob.token, "GET", []string{"bert"}, 403},
		"another user reads logs": {bob.token, "GET", []string{"bert", "logs"}, 403},
		"another user deletes":    {bob.token, "DELETE", []string{"bert"}, 403},
		"nobody":                  {"", "GET", nil, 401},
		"a reader lists":          {reader, "GET", nil, 200},
		"a reader shows":          {reader, "GET", []string{"bert"}, 200},
		"a reader reads logs":     {reader, "GET", []string{"bert", "logs"}, 403},
		"a reader deletes":        {reader, "DELETE", []string{"bert"}, 403},
		"the owner reads logs":    {ada.token, "GET", []string{"bert", "logs"}, 200},
		"an unknown parameter":    {ada.token, "GET", []string{"bert?rank=1"}, 400},
		"a name that is a path":   {ada.token, "GET", []string{"..%2f..%2fx"}, 400},
	} {
		got := ask(t, tc.method, historyURL(server, ada.namespace, tc.parts...), tc.token, nil)
		if got.code != tc.want {
			t.Errorf("%s: %d %s, want %d", name, got.code, got.body, tc.want)
		}
		if tc.want >= 400 && strings.Contains(got.body, "secret results") {
			t.Errorf("%s: the answer has the log", name)
		}
	}

	// The component itself answers only Trireme's server.
	path := keeper.url + history.APIPath("MPIJob", ada.namespace)
	for name, tc := range map[string]struct {
		token string
		want  int
	}{
		"the server":                     {cluster.tokenOfServer(t), 200},
		"the server, for the API server": {cluster.tokenFor(t, deployed.Namespace, "trireme-server"), 401},
		"a user's own token":             {ada.token, 401},
		"a user, for its audience":       {cluster.tokenFor(t, ada.namespace, "ada", history.Audience), 403},
		"nobody":                         {"", 401},
	} {
		if code := askHistory(t, path, tc.token); code != tc.want {
			t.Errorf("%s asks the history: %d, want %d", name, code, tc.want)
		}
	}

	cluster.recreate(t, ada.namespace)
	cluster.allow(t, ada.namespace, "next", rbacv1.PolicyRule{APIGroups: []string{"kubeflow.org", ""}, Resources: []string{"*"}, Verbs: []string{"*"}})
	next := &person{name: "next", namespace: ada.namespace, token: cluster.tokenFor(t, ada.namespace, "next")}
	eventually.Succeeds(t, "the next owner may list jobs", func() error {
		if got := ask(t, "GET", historyURL(server, next.namespace), next.token, nil); got.code != http.StatusOK {
			return fmt.Errorf("%d %s", got.code, got.body)
		}
		return nil
	})
	if list := listed(t, server, next); list.Total != 0 || len(list.Items) != 0 {
		t.Errorf("the next namespace of the name sees %+v", list.Items)
	}
	for _, parts := range [][]string{{"bert"}, {string(bert.job.UID)}, {"bert", "logs"}, {string(bert.job.UID), "logs"}} {
		if got := ask(t, "GET", historyURL(server, next.namespace, parts...), next.token, nil); got.code != http.StatusNotFound {
			t.Errorf("the next namespace of the name gets %v: %d %s", parts, got.code, got.body)
		}
	}
}

// askHistory returns the status code of a request to the component.
func askHistory(t *testing.T, url, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// allow creates a service account with a permission in its namespace.
func (cluster *cluster) allow(t *testing.T, namespace, name string, rule rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta}, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		},
	} {
		if err := cluster.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
}

// recreate deletes a namespace, as its controller does, and creates it again.
func (cluster *cluster) recreate(t *testing.T, name string) {
	t.Helper()
	for _, object := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.RoleBinding{}, &rbacv1.Role{}, &v2beta1.MPIJob{}} {
		if err := cluster.client.DeleteAllOf(t.Context(), object, client.InNamespace(name)); err != nil {
			t.Fatal(err)
		}
	}
	namespaces := cluster.typed.CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	terminating, err := namespaces.Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		terminating.Spec.Finalizers = nil
		_, err = namespaces.Finalize(t.Context(), terminating, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the namespace is created again", func() error {
		_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	})
}

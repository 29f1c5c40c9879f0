// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

const statusToken = "planted-status-token"

// listeningOperator receives what a launcher reports.
type listeningOperator struct {
	server    *httptest.Server
	directory string

	mutex    sync.Mutex
	messages []protocol.Activity
	tokens   []string
	reply    protocol.ActivityReply
}

func startOperator(t testing.TB) *listeningOperator {
	t.Helper()
	lo := &listeningOperator{directory: t.TempDir(), reply: protocol.ActivityReply{IntervalSeconds: 1}}
	lo.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/job/status"+protocol.ActivitySuffix {
			http.NotFound(w, r)
			return
		}
		var a protocol.Activity
		if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
			t.Errorf("read a message: %v", err)
		}
		lo.mutex.Lock()
		defer lo.mutex.Unlock()
		lo.messages, lo.tokens = append(lo.messages, a), append(lo.tokens, r.Header.Get("Authorization"))
		_ = json.NewEncoder(w).Encode(lo.reply)
	}))
	t.Cleanup(lo.server.Close)
	lo.trust(t)
	return lo
}

// trust writes what is mounted into the launcher.
func (lo *listeningOperator) trust(t testing.TB) {
	t.Helper()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: lo.server.Certificate().Raw})
	mustWrite(t, filepath.Join(lo.directory, protocol.StatusCA), string(certificate))
	mustWrite(t, filepath.Join(lo.directory, protocol.StatusToken), statusToken+"\n")
}

func (lo *listeningOperator) environment() []string {
	return []string{
		protocol.StatusURLVariable + "=" + lo.server.URL + "/job/status",
		protocol.StatusCAVariable + "=" + filepath.Join(lo.directory, protocol.StatusCA),
		protocol.StatusTokenVariable + "=" + filepath.Join(lo.directory, protocol.StatusToken),
		// A proxy of the image does not matter.
		"HTTPS_PROXY=http://127.0.0.1:9", "https_proxy=http://127.0.0.1:9",
	}
}

func (lo *listeningOperator) received() []protocol.Activity {
	lo.mutex.Lock()
	defer lo.mutex.Unlock()
	return slices.Clone(lo.messages)
}

func (lo *listeningOperator) last() protocol.Activity {
	all := lo.received()
	if len(all) == 0 {
		return protocol.Activity{}
	}
	return all[len(all)-1]
}

func (lo *listeningOperator) ask(reply protocol.ActivityReply) {
	lo.mutex.Lock()
	defer lo.mutex.Unlock()
	lo.reply = reply
}

// awaitMessage waits for a message with a property.
func (lo *listeningOperator) awaitMessage(t testing.TB, what string, holds func(protocol.Activity) bool) protocol.Activity {
	t.Helper()
	eventually.Holds(t, what, func() bool { return holds(lo.last()) })
	return lo.last()
}

func TestLaunchReportsActivity(t *testing.T) {
	t.Parallel()
	operator := startOperator(t)
	worker := startWorker(t, newKeys(t))
	directory := t.TempDir()
	proceed := filepath.Join(directory, "proceed")
	// A rank on the worker, one on the launcher, and what they print.
	script := fmt.Sprintf(`ssh localhost 'echo "[1] a line"; PMI_RANK=1 exec sleep 600' & remote=$!
PMI_RANK=0 sleep 600 & local=$!
echo '[0] trireme: {"step": 5, "of": 20, "loss": 0.5}'
while [ ! -e %s ]; do sleep 0.05; done
echo '[0] trireme: {"step": 20}'
printf unfinished
kill $local $remote; wait; exit 0`, proceed)
	environment := append(operator.environment(), protocol.TagOutputVariable+"=MPICH")
	command, message := prepareLaunch(t, worker.keys, worker.port, "localhost\n", environment, sh(script)...)
	var stdout, stderr buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	got := operator.awaitMessage(t, "both ranks are reported", func(a protocol.Activity) bool { return len(a.Hosts) == 2 && len(a.Hosts[0].Ranks) == 1 })
	hostname, _ := os.Hostname()
	if got.Hosts[0].Name != "localhost" || got.Hosts[0].Ranks[0].Rank != 1 || got.Hosts[1].Name != hostname || got.Hosts[1].Ranks[0].Rank != 0 {
		t.Errorf("hosts %+v", got.Hosts)
	}
	wantProgress := &protocol.Progress{Step: new(int64(5)), Of: 20, Percentage: new(int32(25)), Metrics: []protocol.Metric{{Name: "loss", Value: "0.5"}}}
	if diff := cmp.Diff(wantProgress, got.Progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
	if zero := got.Hosts[1].Ranks[0]; zero.Step == nil || *zero.Step != 5 || zero.LastOutput == nil || got.LastOutput == nil {
		t.Errorf("rank 0: %+v, last output %v", zero, got.LastOutput)
	}
	if one := got.Hosts[0].Ranks[0]; one.Step != nil || one.LastOutput == nil {
		t.Errorf("rank 1: %+v", one)
	}
	// The token is rotated, and the operator asks for an examination.
	mustWrite(t, filepath.Join(operator.directory, protocol.StatusToken), statusToken+"-2")
	operator.ask(protocol.ActivityReply{IntervalSeconds: 1, Examine: true})
	got = operator.awaitMessage(t, "the ranks are examined", func(a protocol.Activity) bool { return a.Examined })
	for _, host := range got.Hosts {
		if rank := host.Ranks[0]; rank.Doing != protocol.Sleeping || rank.WaitsFor != "hrtimer_nanosleep" {
			t.Errorf("rank %d does %s and waits for %s, want a sleep", rank.Rank, rank.Doing, rank.WaitsFor)
		}
	}
	// The operator is replaced by another one, which asks for the metrics over time.
	loss := protocol.Curve{Name: "loss", Points: []protocol.Point{{Milliseconds: 1, Step: new(int64(5)), Value: 0.5}}}
	operator.ask(protocol.ActivityReply{IntervalSeconds: 1, Newest: []protocol.Curve{loss}})
	sent := len(operator.received())
	eventually.Holds(t, "the agent has received the newest points", func() bool { return len(operator.received()) >= sent+2 })
	if kept := operator.last().Kept; kept != nil {
		t.Errorf("without a request, the agent sends %+v", kept)
	}
	operator.ask(protocol.ActivityReply{IntervalSeconds: 1, Recall: true})
	got = operator.awaitMessage(t, "what the agent has kept is sent", func(a protocol.Activity) bool { return a.Kept != nil })
	if len(got.Kept) != 1 || got.Kept[0].Name != "loss" || cmp.Diff(loss.Points[0], got.Kept[0].Points[0]) != "" {
		t.Errorf("the agent has kept %+v", got.Kept)
	}
	mustWrite(t, proceed, "")
	_ = command.Wait()
	got = operator.last()
	if !got.Final || got.Progress == nil || *got.Progress.Step != 20 {
		t.Errorf("the last message is %+v", got)
	}
	if code := command.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, stderr.String())
	}
	mustContain(t, "stdout", stdout.String(), `[0] trireme: {"step": 5, "of": 20, "loss": 0.5}`, "[1] a line", "unfinished")
	operator.mutex.Lock()
	defer operator.mutex.Unlock()
	if first, last := operator.tokens[0], operator.tokens[len(operator.tokens)-1]; first != "Bearer "+statusToken || last != "Bearer "+statusToken+"-2" {
		t.Error("the first or the last message does not have the token of its time")
	}
	mustHoldNoSecret(t, worker.keys, "the launcher's output", stdout.String()+stderr.String(), statusToken)
	messages, _ := json.Marshal(operator.messages)
	mustHoldNoSecret(t, worker.keys, "the messages", string(messages), statusToken, commandToken)
	readReport(t, worker.keys, message)
}

// A run is the same if nobody can receive its reports.
func TestLaunchWithoutOperator(t *testing.T) {
	t.Parallel()
	worker := startWorker(t, newKeys(t))
	answering := func(handler http.HandlerFunc) func(*testing.T, *listeningOperator) {
		return func(_ *testing.T, operator *listeningOperator) { operator.server.Config.Handler = handler }
	}
	tests := map[string]struct {
		change      func(*testing.T, *listeningOperator)
		environment []string
		wantLog     string
	}{
		"it refuses": {change: answering(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }), wantLog: "the operator answers 403 Forbidden\n"},
		"it says why": {change: answering(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"kind": "Status", "message": "too many ranks"}`)
		}), wantLog: "the operator answers 422 Unprocessable Entity: too many ranks"},
		"it does not answer": {change: func(t *testing.T, operator *listeningOperator) {
			hang := make(chan struct{})
			t.Cleanup(func() { close(hang) }) // Before the server is closed, which waits for it.
			operator.server.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang })
		}},
		"it answers nonsense": {change: answering(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }), wantLog: "answer is not JSON"},
		"it redirects": {change: answering(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:9/", http.StatusTemporaryRedirect)
		}), wantLog: "307 Temporary Redirect"},
		"it is down":         {change: func(_ *testing.T, operator *listeningOperator) { operator.server.Close() }, wantLog: "connection refused"},
		"another CA":         {change: otherCA, wantLog: "certificate"},
		"no certificate":     {change: writeStatusFile(protocol.StatusCA, "none"), wantLog: "has no certificate"},
		"no token":           {change: removeStatusFile(protocol.StatusToken)},
		"no CA":              {change: removeStatusFile(protocol.StatusCA)},
		"no URL":             {environment: []string{protocol.StatusURLVariable + "="}},
		"not https":          {environment: []string{protocol.StatusURLVariable + "=http://127.0.0.1:9"}, wantLog: "is not an https URL"},
		"an invalid pattern": {environment: []string{protocol.ProgressPatternVariable + "=("}, wantLog: "is not a regular expression"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			operator := startOperator(t)
			if tc.change != nil {
				tc.change(t, operator)
			}
			script := `echo 'trireme: {"step": 1}'; PMI_RANK=0 sh -c "sleep 4"; echo done; exit 3`
			got := runLaunch(t, worker.keys, worker.port, "localhost\n", append(operator.environment(), tc.environment...), sh(script)...)
			if got.Status != 3 || got.Stdout != "trireme: {\"step\": 1}\ndone\n" || got.report.Reason != protocol.ReasonTraining {
				t.Errorf("exit code %d, stdout %q, reason %s", got.Status, got.Stdout, got.report.Reason)
			}
			want := 0
			if tc.wantLog != "" {
				want = 1
				mustContain(t, "stderr", got.Stderr, tc.wantLog)
			}
			if count := strings.Count(got.Stderr, "cannot report progress"); count != want {
				t.Errorf("%d lines about it, want %d:\n%s", count, want, got.Stderr)
			}
		})
	}
}

func otherCA(t *testing.T, operator *listeningOperator) {
	other := httptest.NewUnstartedServer(nil)
	other.TLS = nil
	other.StartTLS()
	defer other.Close()
	// httptest has one certificate, so one byte of it is changed.
	raw := slices.Clone(other.Certificate().Raw)
	raw[len(raw)-1] ^= 1
	mustWrite(t, filepath.Join(operator.directory, protocol.StatusCA), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})))
}

func writeStatusFile(name, content string) func(*testing.T, *listeningOperator) {
	return func(t *testing.T, operator *listeningOperator) {
		mustWrite(t, filepath.Join(operator.directory, name), content)
	}
}

func removeStatusFile(name string) func(*testing.T, *listeningOperator) {
	return func(t *testing.T, operator *listeningOperator) {
		if err := os.Remove(filepath.Join(operator.directory, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// A command without ranks and without progress is not reported.
func TestLaunchReportsNothingWithoutRanks(t *testing.T) {
	t.Parallel()
	operator := startOperator(t)
	worker := startWorker(t, newKeys(t))
	got := runLaunch(t, worker.keys, worker.port, "localhost\n", operator.environment(), sh("sleep 3; echo done")...)
	if got.Status != 0 || got.Stdout != "done\n" || len(operator.received()) != 0 {
		t.Errorf("exit code %d, stdout %q, %d messages", got.Status, got.Stdout, len(operator.received()))
	}
}

// The workers of images with an sshd have no agent that could be asked.
func TestImageSSHReportsOnlyTheLauncher(t *testing.T) {
	operator := startOperator(t)
	for _, setting := range operator.environment()[:3] {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	t.Setenv(protocol.KeysVariable, t.TempDir()) // It has no keys of the job.
	r := (&launch{self: "launcher", imageSSH: true, hosts: []string{"worker"}}).newReporter()
	if r == nil || len(r.collector.workers) != 0 {
		t.Fatalf("reporter %+v, want one without workers", r)
	}
	if hosts := r.look(t.Context(), false).Hosts; len(hosts) != 1 || hosts[0].Name != "launcher" {
		t.Errorf("hosts %+v", hosts)
	}
}

// A host that does not answer neither hides nor delays the others for long.
func TestCollectorSkipsSlowHost(t *testing.T) {
	good, slow := startWorker(t, newKeys(t)), startWorker(t, newKeys(t))
	client := good.login(t, launchUser+"A")
	_ = startedProcess(t, client, `PMI_RANK=3 sh -c 'echo $$; exec sleep 600'`)
	c := newCollector("launcher", clientOf(t, good), []string{"localhost", "localhost", "127.0.0.2"})
	c.workers[1].endpoint.client = clientOf(t, slow)
	if err := slow.command.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		hosts := c.collect(t.Context(), false)
		if len(hosts) != 3 || hosts[0].Name != "localhost" || hosts[1].Name != "127.0.0.2" || hosts[2].Name != "launcher" {
			t.Fatalf("hosts %+v", hosts)
		}
		if diff := cmp.Diff([]int{3}, rankNumbers(hosts[0])); diff != "" || hosts[0].Unknown != "" {
			t.Errorf("ranks of the good host (-want +got):\n%s%s", diff, hosts[0].Unknown)
		}
		if hosts[1].Unknown == "" || len(hosts[1].Ranks) != 0 {
			t.Errorf("the slow host: %+v", hosts[1])
		}
	}
	if err := slow.command.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "the slow host answers again", func() bool { return c.collect(t.Context(), false)[1].Unknown == "" })
	// One connection is enough for many requests.
	session := c.workers[0].endpoint.session
	_ = c.collect(t.Context(), false)
	if c.workers[0].endpoint.session != session || session == nil {
		t.Error("the connection to the good host was not used again")
	}
}

func clientOf(t *testing.T, worker *workerProcess) *client {
	t.Helper()
	t.Setenv(protocol.KeysVariable, worker.keys)
	t.Setenv(protocol.PortVariable, fmt.Sprint(worker.port))
	client, err := newClient(launchUser + "A")
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// A job that reports for days, or many metrics, takes no more memory.
func TestKeptMetricsAreBounded(t *testing.T) {
	tests := map[string]struct{ metrics, reports int }{"a long job": {1, 10_000}, "many metrics": {100, 500}, "few reports": {5, 20}}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var kept keptCurves
			for i := range tc.reports {
				for metric := range tc.metrics {
					kept.add([]protocol.Curve{{Name: fmt.Sprint(metric), Points: []protocol.Point{{Milliseconds: int64(i), Value: float64(i)}}}})
				}
			}
			all, total := kept.all(), 0
			for _, one := range all {
				total += len(one.Points)
				last := one.Points[len(one.Points)-1]
				if len(one.Points) > protocol.MaxPoints || last.Value != float64(tc.reports-1) || !slices.IsSortedFunc(one.Points, func(a, b protocol.Point) int { return int(a.Milliseconds - b.Milliseconds) }) {
					t.Errorf("metric %s has %d points, the last is %v", one.Name, len(one.Points), last)
				}
				if reported := tc.reports; reported <= 20 && len(one.Points) != reported {
					t.Errorf("metric %s has %d points of %d", one.Name, len(one.Points), reported)
				}
			}
			if want := min(tc.metrics, protocol.MaxCurves); len(all) != want || total > protocol.MaxKeptPoints || total != kept.points {
				t.Errorf("%d curves with %d points (counted %d), want %d curves", len(all), total, kept.points, want)
			}
		})
	}
}

func TestLineWriter(t *testing.T) {
	long := strings.Repeat("x", maxWatchedLine)
	tests := map[string]struct {
		writes []string
		want   int64
	}{
		"a line in pieces":       {writes: []string{"trire", `me: {"step"`, `: 4}`, "\n"}, want: 4},
		"two lines in a write":   {writes: []string{"trireme: {\"step\": 4}\ntrireme: {\"step\": 5}\n"}, want: 5},
		"a line without its end": {writes: []string{"trireme: {\"step\": 4}\ntrireme: {\"step\": 5}"}, want: 4},
		"carriage returns":       {writes: []string{"trireme: {\"step\": 4}\rtrireme: {\"step\": 5}\r\n"}, want: 5},
		"after a long line":      {writes: []string{long, long, "trireme: {\"step\": 4}\n", "trireme: {\"step\": 5}\n"}, want: 5},
		"after a line in pieces": {writes: []string{"abc", "def\n", "trireme: {\"step\": 5}\n"}, want: 5},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			watch, err := newOutputWatch()
			if err != nil {
				t.Fatal(err)
			}
			writer := watch.writer().(*lineWriter)
			for _, text := range tc.writes {
				if count, err := writer.Write([]byte(text)); count != len(text) || err != nil {
					t.Fatalf("wrote %d of %d: %v", count, len(text), err)
				}
			}
			a := &protocol.Activity{Time: time.Now()}
			watch.addTo(a)
			if a.Progress == nil || *a.Progress.Step != tc.want || a.LastOutput == nil {
				t.Errorf("progress %+v, last output %v; want step %d", a.Progress, a.LastOutput, tc.want)
			}
			if len(writer.rest) > maxWatchedLine {
				t.Errorf("%d bytes are kept", len(writer.rest))
			}
		})
	}
}

func TestRanksOfHostAreLimited(t *testing.T) {
	if host := hostOf(make([]rankProcess, protocol.MaxRanksOfHost)); len(host.Ranks) != protocol.MaxRanksOfHost || host.Unknown != "" {
		t.Errorf("%d ranks, unknown: %q", len(host.Ranks), host.Unknown)
	}
	if host := hostOf(make([]rankProcess, protocol.MaxRanksOfHost+1)); len(host.Ranks) != 0 || host.Unknown == "" {
		t.Errorf("%d ranks, unknown: %q", len(host.Ranks), host.Unknown)
	}
}

func TestMessageSizeIsLimited(t *testing.T) {
	a := &protocol.Activity{Time: time.Now()}
	for i := range 100 {
		a.Hosts = append(a.Hosts, protocol.Host{Name: fmt.Sprintf("host-%d", i), Ranks: make([]protocol.Rank, 64)})
	}
	p := &poster{maxMessageSize: 100 << 10}
	body, err := p.encode(a)
	if err != nil || len(body) > p.maxMessageSize {
		t.Fatalf("%d bytes, error %v", len(body), err)
	}
	if len(a.Hosts) != 100 || len(a.Hosts[0].Ranks) != 64 || a.Hosts[99].Unknown == "" || a.Hosts[99].Name != "host-99" {
		t.Errorf("%d hosts, the first has %d ranks, the last is %+v", len(a.Hosts), len(a.Hosts[0].Ranks), a.Hosts[99])
	}
}

// The copy of every line of the output.
func BenchmarkLineWriter(b *testing.B) {
	watch, err := newOutputWatch()
	if err != nil {
		b.Fatal(err)
	}
	writer := watch.writer()
	line := []byte("[1,3]<stdout>:epoch: 3 step: 1200 loss: 0.4231 lr: 3e-4\n")
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		_, _ = writer.Write(line)
	}
}

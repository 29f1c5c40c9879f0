// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

func portCheckGate(t testing.TB, ports mpi.Ports, launcherHasRanks bool) *gate {
	t.Helper()
	keys := newKeys(t)
	caller := newTestClient(t, keys)
	caller.port = serveEverywhere(t, keys)
	return &gate{client: caller, timeout: patience, ports: newPortCheck(ports, "launcher", launcherHasRanks)}
}

func mustPass(t testing.TB, got gateResult) {
	t.Helper()
	if len(got.unreached) > 0 {
		t.Errorf("not reached: %+v", got.unreached)
	}
	for _, failure := range got.blocked {
		t.Error(failure)
	}
}

func TestPortsBetweenHostsAreChecked(t *testing.T) {
	for _, hosts := range []int{1, 2, 3, maxRing, maxRing + 1} {
		for _, launcherHasRanks := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d hosts, ranks on the launcher %t", hosts, launcherHasRanks), func(t *testing.T) {
				got := portCheckGate(t, mpi.Ports{}, launcherHasRanks).pass(t.Context(), loopbacks(hosts))
				mustPass(t, got)
				if got.ports <= 0 {
					t.Error("no ports were checked")
				}
			})
		}
	}
}

func TestDuplicateHostsAreCheckedOnce(t *testing.T) {
	hosts := append(loopbacks(2), loopbacks(2)...)
	mustPass(t, portCheckGate(t, mpi.Ports{}, false).pass(t.Context(), hosts))
	if rings := ringsOf(unique(hosts)); len(rings) != 1 || len(rings[0]) != 2 {
		t.Errorf("rings %v", rings)
	}
}

func TestRoutesOfARing(t *testing.T) {
	tests := map[string]struct {
		workers          int
		launcherHasRanks bool
		want             []string
	}{
		"no worker":                            {},
		"no worker, ranks on the launcher":     {launcherHasRanks: true},
		"one worker":                           {workers: 1, want: []string{"0>launcher"}},
		"one worker, ranks on the launcher":    {workers: 1, launcherHasRanks: true, want: []string{"0>launcher", "launcher>0"}},
		"two workers":                          {workers: 2, want: []string{"0>1", "0>launcher", "1>0", "1>launcher"}},
		"two workers, ranks on the launcher":   {workers: 2, launcherHasRanks: true, want: []string{"0>1", "0>launcher", "1>launcher", "launcher>0"}},
		"four workers: the next, not all":      {workers: 4, want: []string{"0>1", "0>launcher", "1>2", "1>launcher", "2>3", "2>launcher", "3>0", "3>launcher"}},
		"three workers, ranks on the launcher": {workers: 3, launcherHasRanks: true, want: []string{"0>1", "0>launcher", "1>2", "1>launcher", "2>launcher", "launcher>0"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var workers []*workerEndpoint
			for i := range tc.workers {
				workers = append(workers, &workerEndpoint{host: strconv.Itoa(i)})
			}
			var got []string
			for _, route := range newPortCheck(mpi.Ports{}, "launcher", tc.launcherHasRanks).routes(workers, true) {
				got = append(got, route.from.name()+">"+route.to.name())
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("routes %v, want %v", got, tc.want)
			}
		})
	}
}

// An MPI with a range of one port must get the port at once, also without SO_REUSEADDR.
func TestPortsAreFreeAfterGate(t *testing.T) {
	ranks, launcher := quietPort(t), quietPort(t)
	ports := mpi.Ports{Ranks: mpi.PortRanges{{First: ranks, Last: ranks}}, Launcher: mpi.PortRanges{{First: launcher, Last: launcher}}}
	hosts := loopbacks(3)
	for range 5 {
		mustPass(t, portCheckGate(t, ports, true).pass(t.Context(), hosts))
		for _, host := range hosts {
			mustBind(t, host, ranks)
		}
		mustBind(t, "0.0.0.0", launcher)
	}
}

// quietPort is free at all addresses, and not an ephemeral port.
func quietPort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20000 + mathrand.IntN(10000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port)); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// mustBind listens without SO_REUSEADDR, which Go always sets.
func mustBind(t testing.TB, host string, port int) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(socket)
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte(net.ParseIP(host).To4()), Port: port}); err != nil {
		t.Errorf("%s:%d is not free: %v", host, port, err)
	}
}

func TestRangeWithoutAFreePort(t *testing.T) {
	taken, err := net.Listen("tcp", loopbacks(2)[1]+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := portOf(taken.Addr().String())
	gate := portCheckGate(t, mpi.Ports{Ranks: mpi.PortRanges{{First: port, Last: port}}}, false)
	gate.timeout = time.Second
	got := gate.pass(t.Context(), loopbacks(2))
	if len(got.blocked) != 1 || got.blocked[0].trouble != protocol.NoFreePort {
		t.Fatalf("blocked: %v", got.blocked)
	}
	report := blocked(2, got.blocked)
	if report.Reason != protocol.ReasonMPI || report.Trouble != protocol.NoFreePort || report.Host != loopbacks(2)[1] || report.ExitCode != exitMPI {
		t.Errorf("report %+v", report)
	}
	mustContain(t, "the message", report.Message, loopbacks(2)[1]+" has no free port in "+strconv.Itoa(port), "address already in use", advice[protocol.NoFreePort])
}

// The containers of workers may be restarted while the gate waits for others.
func TestPortCheckLogsInAgain(t *testing.T) {
	gate := portCheckGate(t, mpi.Ports{}, false)
	var workers []*workerEndpoint
	for _, host := range loopbacks(3) {
		session, _, err := gate.client.connect(t.Context(), host, gate.client.port)
		if err != nil {
			t.Fatal(err)
		}
		worker := &workerEndpoint{client: gate.client, host: host}
		worker.use(session)
		defer worker.close()
		workers = append(workers, worker)
	}
	_ = workers[1].session.Close()
	defer gate.ports.launcher.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, failure := range gate.ports.run(ctx, ctx, workers, true) {
		t.Error(failure)
	}
}

func TestWorkerLostDuringCheck(t *testing.T) {
	keys := newKeys(t)
	worker := serveLocally(t, keys)
	caller := newTestClient(t, keys)
	caller.port = portOf(worker.address)
	session, _, err := caller.connect(t.Context(), "127.0.0.1", caller.port)
	if err != nil {
		t.Fatal(err)
	}
	lost := &workerEndpoint{client: caller, host: "127.0.0.1"}
	lost.use(session)
	_ = session.Close()
	caller.port = deafPort(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	check := newPortCheck(mpi.Ports{}, "launcher", true)
	defer check.launcher.close()
	var got gateResult
	got.add(check.run(t.Context(), over, []*workerEndpoint{lost}, true))
	if len(got.blocked) > 0 || len(got.unreached) != 1 || got.unreached[0].Host != "127.0.0.1" {
		t.Errorf("blocked %v, unreached %+v", got.blocked, got.unreached)
	}
}

func TestOnlyTheHostItselfCounts(t *testing.T) {
	expected := challenge{Question: "question", Answer: "answer"}
	tests := map[string]struct {
		answer func(net.Conn)
		want   string
	}{
		"an echo":             {answer: func(connection net.Conn) { _, _ = io.Copy(connection, connection) }, want: errOtherProgram.Error()},
		"a server's greeting": {answer: func(connection net.Conn) { _, _ = io.WriteString(connection, "220 mail.example.com ESMTP") }, want: errOtherProgram.Error()},
		"it closes at once":   {answer: func(connection net.Conn) { _ = connection.Close() }, want: ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			address := fmt.Sprintf("127.0.0.1:%d", answerWith(t, tc.answer))
			got := callAll(t.Context(), callRequest{challenge: expected, Addresses: []string{address}})
			if len(got.Causes) != 1 || got.Causes[0] == "" || tc.want != "" && got.Causes[0] != tc.want {
				t.Errorf("causes %q, want %q", got.Causes, tc.want)
			}
		})
	}
}

// A caller that does not know the question is not counted, and gets no response.
func TestStrangersDoNotCloseAnOpenPort(t *testing.T) {
	worker := serveLocally(t, newKeys(t))
	client := worker.login(t)
	defer client.Close()
	expected := challenge{Question: "question", Answer: "answer"}
	endpoint := &workerEndpoint{host: "127.0.0.1"}
	endpoint.use(client)
	opened, err := endpoint.open(t.Context(), portRequest{challenge: expected, Callers: 1})
	if err != nil || opened.Port == 0 {
		t.Fatalf("opened %+v (%v)", opened, err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", opened.Port)
	other, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_ = other.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(other, "whatever")
	if answer, err := io.ReadAll(other); err == nil && len(answer) > 0 {
		t.Errorf("another caller gets %q", answer)
	}
	if err := callPort(t.Context(), address, expected); err != nil {
		t.Fatalf("the caller that is expected: %v", err)
	}
	if connection, err := net.Dial("tcp", address); err == nil {
		_ = connection.Close()
		t.Error("the port is still open after the last caller has its answer")
	}
}

func TestOneOpenPortForEachConnection(t *testing.T) {
	worker := serveLocally(t, newKeys(t))
	client := worker.login(t)
	endpoint := &workerEndpoint{host: "127.0.0.1"}
	endpoint.use(client)
	isOpen := func(port int) bool {
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	}
	request := portRequest{challenge: challenge{Question: "question", Answer: "answer"}, Callers: 1}
	first, err := endpoint.open(t.Context(), request)
	if err != nil || !isOpen(first.Port) {
		t.Fatalf("first %+v (%v)", first, err)
	}
	second, err := endpoint.open(t.Context(), request)
	if err != nil || !isOpen(second.Port) {
		t.Fatalf("second %+v (%v)", second, err)
	}
	if first.Port != second.Port && isOpen(first.Port) {
		t.Error("the first port is still open")
	}
	_ = client.Close()
	eventually.HoldsWithin(t, patience, "the port closes with the connection", func() bool { return !isOpen(second.Port) })
}

func TestWorkerRefusesOtherRequests(t *testing.T) {
	worker := serveLocally(t, newKeys(t))
	client := worker.login(t)
	defer client.Close()
	for name, request := range map[string]struct{ kind, payload string }{
		"no JSON":                 {openPortRequest, "{"},
		"no question":             {openPortRequest, `{"callers":1}`},
		"no caller":               {openPortRequest, `{"question":"q","answer":"a"}`},
		"a call without question": {callPortsRequest, `{"addresses":["127.0.0.1:1"]}`},
		"too many calls":          {callPortsRequest, `{"question":"q","addresses":["127.0.0.1:1","127.0.0.1:1","127.0.0.1:1"]}`},
		"forwarding":              {"tcpip-forward", "\x00\x00\x00\x00\x00\x00\x00\x00"},
		"anything":                {"keepalive@openssh.com", ""},
	} {
		accepted, _, err := client.SendRequest(request.kind, true, []byte(request.payload))
		if err != nil || accepted {
			t.Errorf("%s: accepted %t (%v)", name, accepted, err)
		}
	}
	worker.mustStillWork(t)
}

func TestPortsThatAreChecked(t *testing.T) {
	environment := []string{"I_MPI_PORT_RANGE=50000:50500"}
	for text, want := range map[string]string{"": "50000-50500", "10000-10099": "10000-10099"} {
		ports, err := parsePorts(text, environment, nil)
		if err != nil || ports.Ranks.String() != want || ports.Launcher.String() != want {
			t.Errorf("%q: %v (%v), want %s", text, ports, err, want)
		}
	}
	if ports, err := parsePorts("off", environment, nil); ports != nil || err != nil {
		t.Errorf("off: %v (%v)", ports, err)
	}
	if _, err := parsePorts("many", environment, nil); err == nil || !strings.Contains(err.Error(), protocol.PortsVariable) {
		t.Errorf("many: %v", err)
	}
}

// newConnections matches only new connections: responses may come to any port.
const newConnections = "tcp flags & (syn | ack) != syn accept\n"

// firewall is a network namespace in which packets are dropped.
type firewall struct{ enter []string }

func newFirewall(t *testing.T, rules string) *firewall {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	script := "ip link set lo up && nft -f - && echo ready && exec sleep 600"
	command := boundedCommand(t, "unshare", "-n", "sh", "-c", script)
	command.Stdin = strings.NewReader("table inet block {\n chain input {\n type filter hook input priority 0\n" + newConnections + rules + "\n}\n}\n")
	var stdout, stderr buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Start(); err != nil {
		t.Skipf("no network namespace on this machine: %v", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
	})
	for stdout.String() == "" {
		select {
		case <-ended:
			t.Skipf("no network namespace with a firewall on this machine: %s", stderr.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return &firewall{enter: []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", command.Process.Pid)}}
}

// launch runs a launcher and its workers behind the firewall. No other process has ports
// there, so the agent uses its default port.
func (f *firewall) launch(t *testing.T, hostfile string, environment ...string) launched {
	t.Helper()
	worker := startWorkerBy(t, append(slices.Clone(f.enter), agentBinary(t), "worker"), newKeys(t), fmt.Sprintf("%s=%d", protocol.PortVariable, protocol.Port))
	command, message := prepareLaunch(t, worker.keys, protocol.Port, hostfile, environment, sh("echo started")...)
	nsenter, err := exec.LookPath(f.enter[0])
	if err != nil {
		t.Skip("nsenter is not on this machine (Debian: util-linux)")
	}
	command.Args = append(slices.Clone(f.enter), append([]string{command.Path}, command.Args[1:]...)...)
	command.Path = nsenter
	return launched{outcome: finish(t, worker.keys, command), report: readReport(t, worker.keys, message)}
}

func TestBlockedPorts(t *testing.T) {
	const hosts = "127.0.0.2 slots=1\n127.0.0.3 slots=1\n"
	tests := map[string]struct {
		rules       string
		environment []string
		hostfile    string
		// wantPeer is the host that is not reached; empty if the gate is passed.
		wantPeer  string
		wantHosts []string
		wantWords string
	}{
		"between workers": {rules: "ip daddr 127.0.0.3 tcp dport 41000-41999 drop", environment: []string{"OMPI_MCA_btl_tcp_port_min_v4=41000", "OMPI_MCA_btl_tcp_port_range_v4=1000"},
			wantPeer: "127.0.0.3", wantHosts: []string{"127.0.0.2"}, wantWords: "The range that is set for MPI is 41000-41999"},
		"ephemeral ports between workers": {rules: "ip daddr 127.0.0.3 tcp dport 32768-60999 drop",
			wantPeer: "127.0.0.3", wantHosts: []string{"127.0.0.2"}, wantWords: "No range is set for MPI, so it uses any port"},
		"to the launcher": {rules: "ip daddr 127.0.0.1 tcp dport 42000-42999 drop", environment: []string{"OMPI_MCA_oob_tcp_dynamic_ipv4_ports=42000-42999"},
			wantPeer: "launcher", wantHosts: []string{"127.0.0.2", "127.0.0.3"}, wantWords: "The range that is set for MPI is 42000-42999"},
		"refused":            {rules: "ip daddr 127.0.0.3 tcp dport 41000 reject with tcp reset", environment: []string{"UCX_TCP_PORT_RANGE=41000"}, wantPeer: "127.0.0.3", wantHosts: []string{"127.0.0.2"}, wantWords: troubleText[protocol.Refused]},
		"one worker":         {rules: "ip daddr 127.0.0.1 tcp dport 42000-42999 drop", hostfile: "127.0.0.2\n", environment: []string{"I_MPI_PORT_RANGE=42000:42999"}, wantPeer: "launcher", wantHosts: []string{"127.0.0.2"}},
		"others are blocked": {rules: "tcp dport 10000-10999 drop", environment: []string{"MPIR_CVAR_CH3_PORT_RANGE=11000:11999"}},
		"no check":           {rules: "tcp dport 41000 drop", environment: []string{protocol.PortsVariable + "=off", "I_MPI_PORT_RANGE=41000:41000"}},
	}
	self, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.hostfile == "" {
				tc.hostfile = hosts
			}
			firewall := newFirewall(t, tc.rules)
			got := firewall.launch(t, tc.hostfile, append(tc.environment, protocol.GateTimeoutVariable+"=7s")...)
			if tc.wantPeer == "" {
				if got.Status != 0 || got.Stdout != "started\n" {
					t.Errorf("exit code %d: %s", got.Status, got.Stderr)
				}
				return
			}
			peer := tc.wantPeer
			if peer == "launcher" {
				peer = self
			}
			report := got.report
			if got.Stdout != "" || got.Status != exitMPI || report.Reason != protocol.ReasonMPI || report.Trouble != protocol.PortsBlocked || report.Peer != peer || !slices.Contains(tc.wantHosts, report.Host) {
				t.Errorf("exit code %d, output %q, report %+v", got.Status, got.Stdout, report)
			}
			mustContain(t, "the message", report.Message, report.Host+" cannot connect to "+peer+" on TCP port", tc.wantWords, advice[protocol.PortsBlocked])
			// It is not the first try that counts, and not one after the time is over.
			if limit := 7.0; report.Timings.Total < limit-1 || report.Timings.Total > limit+patience.Seconds() {
				t.Errorf("it took %g s, want %g s", report.Timings.Total, limit)
			}
		})
	}
}

// A host that stops reading from its SSH connection must not block the gate.
func TestPortCheckEndsWhenAWorkerHangs(t *testing.T) {
	keys := newKeys(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	config := newLocalWorker(t, keys, io.Discard).config
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			// It logs in, and never answers a request.
			go func() { _, _, _, _ = ssh.NewServerConn(connection, config) }()
		}
	}()
	caller := newTestClient(t, keys)
	caller.port = portOf(listener.Addr().String())
	began := time.Now()
	got := (&gate{client: caller, timeout: time.Second, ports: newPortCheck(mpi.Ports{}, "launcher", false)}).pass(t.Context(), []string{"127.0.0.1"})
	if len(got.unreached) != 1 {
		t.Errorf("unreached %+v, blocked %v", got.unreached, got.blocked)
	}
	if took := time.Since(began); took > 2*patience {
		t.Errorf("it took %s", took)
	}
}

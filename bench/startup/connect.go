// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/mpi"
)

// bench measures one number of workers.
type bench struct {
	settings settings
	launcher *host
	workers  []*host
}

const (
	hostfilePath = "/etc/trbench/hostfile"
	sshdHostKey  = "/etc/ssh/ssh_host_ed25519_key"
)

// Names of the ways, in tables and JSON.
const (
	ours    = "agent"
	openSSH = "OpenSSH"
	// openSSHQuick is told to exchange keys in the cheapest way. It is no longer
	// what OpenSSH does by itself, nor what the agent does: both also exchange keys
	// that withstand quantum computers.
	openSSHQuick = "OpenSSH, x25519"
	// openSSHTree is Open MPI as shipped, where workers log in to workers.
	openSSHTree = "OpenSSH, tree"
)

// servers of the workers. sshd is told to be as quick as it can: without PAM, and
// with no limit on logins that are under way.
var servers = map[string]serve{
	ours: {Command: []string{protocol.Path, "worker"}, Port: protocol.Port},
	openSSH: {Port: 22, Command: []string{"/usr/sbin/sshd", "-De", "-o", "HostKey=" + sshdHostKey, "-o", "PermitRootLogin=yes",
		"-o", "StrictModes=no", "-o", "UsePAM=no", "-o", "MaxStartups=1000"}},
}

// measurement is one thing to measure: a server on every worker, and then what the
// launcher does.
type measurement struct {
	way    string
	server serve
	task   task
	// took reads the time out of what the launcher answers, and when the last rank
	// had started, if there are ranks.
	took func(answer) (took, started time.Duration, err error)
}

// measureConnect: what mpirun calls once for each host, all at a time, with a
// command that does nothing. Ours has passed the gate before.
func (bench *bench) measureConnect() (row, error) {
	var logins, sshLogins, quickLogins [][]string
	for _, worker := range bench.workers {
		logins = append(logins, []string{protocol.Path, worker.name, "true"})
		sshLogins = append(sshLogins, []string{"ssh", "-x", worker.name, "true"})
		quickLogins = append(quickLogins, []string{"ssh", "-x", "-o", "KexAlgorithms=curve25519-sha256", worker.name, "true"})
	}
	took := func(answer answer) (time.Duration, time.Duration, error) {
		return answer.Ended.Sub(answer.Began), 0, nil
	}
	return bench.alternate("connect", []measurement{
		{way: ours, server: servers[ours], took: took, task: bench.task([][][]string{{{protocol.Path, "gate"}}, logins}, bench.agentEnvironment())},
		{way: openSSH, server: servers[openSSH], took: took, task: bench.task([][][]string{sshLogins}, nil)},
		{way: openSSHQuick, server: servers[openSSH], took: took, task: bench.task([][][]string{quickLogins}, nil)},
	})
}

func (bench *bench) task(steps [][][]string, environment []string) task {
	return task{Steps: steps, Environment: environment, Timeout: bench.settings.Timeout}
}

func (bench *bench) agentEnvironment() []string {
	return []string{protocol.HostfileVariable + "=" + hostfilePath, "TRIREME_TERMINATION_LOG=/tmp/termination-log"}
}

func (bench *bench) hostfile() string {
	var hosts []mpi.Host
	for _, worker := range bench.workers {
		hosts = append(hosts, mpi.Host{Name: worker.name, Slots: 1})
	}
	return mpi.Hostfile(mpi.OpenMPI, hosts)
}

// alternate measures all ways in each round, in an order that is drawn. The first
// round fills caches and does not count.
func (bench *bench) alternate(part string, measurements []measurement) (row, error) {
	row := row{Workers: len(bench.workers), Samples: map[string][]float64{}, Started: map[string][]float64{}}
	for repetition := range bench.settings.Repetitions + 1 {
		for _, i := range rand.Perm(len(measurements)) {
			measurement := measurements[i]
			took, started, err := bench.measure(measurement)
			if err != nil {
				row.Error = err.Error()
				return row, fmt.Errorf("%s, %d workers, %s: %w", part, len(bench.workers), measurement.way, err)
			}
			progress("%-8s %3d workers  %-15s %8.3f s   round %d of %d, load %s", part, len(bench.workers), measurement.way, took.Seconds(),
				repetition, bench.settings.Repetitions, loadAverage())
			if repetition > 0 {
				row.Samples[measurement.way] = append(row.Samples[measurement.way], took.Seconds())
				row.Started[measurement.way] = append(row.Started[measurement.way], started.Seconds())
			}
		}
	}
	return row, nil
}

// measure starts servers that know of nothing, as those of new pods, and ends
// them.
func (bench *bench) measure(measurement measurement) (took, started time.Duration, err error) {
	hosts := append(slices.Clone(bench.workers), bench.launcher)
	defer func() {
		if failure := doAll(hosts, order{Clear: true}); err == nil {
			err = failure
		}
	}()
	if _, err := bench.launcher.do(order{Write: map[string]string{hostfilePath: bench.hostfile()}}); err != nil {
		return 0, 0, err
	}
	if err := doAll(bench.workers, order{Serve: &measurement.server}); err != nil {
		return 0, 0, err
	}
	answer, err := bench.launcher.do(order{Run: &measurement.task})
	if err != nil {
		return 0, 0, err
	}
	return measurement.took(answer)
}

// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
)

var reportingJobs = flag.Int("reporting-jobs", 1000, "jobs of BenchmarkReports")

const (
	// ranksOfJob is how many ranks each job reports, all on one host.
	ranksOfJob = 64
	// measuredFor is how long the operator is measured, without reports and with them.
	measuredFor = 2 * time.Minute
)

// reporter is a launcher's agent that reports something new each time.
type reporter struct {
	url, token string
	client     *http.Client
	reports    int64
}

// BenchmarkReports measures what reports cost the operator: CPU time and memory of its
// process, with and without reports of the same running jobs. Every job reports as often
// as the operator asks for it, over a connection of its own, as agents do.
func BenchmarkReports(b *testing.B) {
	r := newReceiver(b)
	reporters := r.reporters(b, *reportingJobs)
	time.Sleep(10 * time.Second) // What it has to do for new jobs is done.
	pid := r.operator.PID()
	restCPU := cores(b, pid)
	restMemory, _ := deployed.Memory(b, pid)

	ctx, stop := context.WithCancel(b.Context())
	var reported atomic.Int64
	var running sync.WaitGroup
	for _, one := range reporters {
		running.Go(func() {
			for ctx.Err() == nil {
				pause := one.report(ctx)
				if one.reports > 0 {
					reported.Add(1)
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	// All tokens are reviewed, and all jobs know their interval.
	for reported.Load() < int64(2*len(reporters)) {
		time.Sleep(time.Second)
	}
	before := reported.Load()
	cpu := cores(b, pid)
	received := reported.Load() - before
	memory, peak := deployed.Memory(b, pid)
	stop()
	running.Wait()
	b.Logf("%d jobs of %d ranks: %.1f reports per second, %.3f cores (%.3f without reports), %d MiB of memory (%d without, %d at most)",
		len(reporters), ranksOfJob, float64(received)/measuredFor.Seconds(), cpu, restCPU, memory>>20, restMemory>>20, peak>>20)
	b.ReportMetric(cpu-restCPU, "cores")
	b.ReportMetric(float64(memory-restMemory)/(1<<20), "MiB")
	b.ReportMetric(float64(received)/measuredFor.Seconds(), "reports/s")
	b.ReportMetric(0, "ns/op")
}

// cores is how many CPUs a process uses from now on.
func cores(b *testing.B, pid int) float64 {
	b.Helper()
	before := deployed.CPUTime(b, pid)
	time.Sleep(measuredFor)
	return (deployed.CPUTime(b, pid) - before).Seconds() / measuredFor.Seconds()
}

// reporters are the launchers of jobs that run.
func (r *receiver) reporters(b *testing.B, count int) []*reporter {
	b.Helper()
	var all []*reporter
	for i := range count {
		j := mpiJob(fmt.Sprintf("job-%d", i))
		r.Create(j)
		launcher, _ := r.runs(j)
		r.trust(j)
		transport := r.client.Transport.(*http.Transport)
		all = append(all, &reporter{
			url: "https://" + r.address + "/apis/" + audienceOf(j) + protocol.ActivitySuffix, token: r.token(launcher, audienceOf(j)),
			client: &http.Client{Timeout: 20 * time.Second, Transport: fromAddress(i, transport.TLSClientConfig)},
		})
		if i%100 == 99 {
			b.Logf("%d jobs are running", i+1)
		}
	}
	return all
}

// fromAddress connects from an address of its own: reviews of tokens are limited for each.
func fromAddress(i int, trust *tls.Config) *http.Transport {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/250), byte(i%250+1))}}
	return &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: trust, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}
}

// report returns when the next report is due.
func (one *reporter) report(ctx context.Context) time.Duration {
	step := one.reports + 1
	host := protocol.Host{Name: "worker-0"}
	for rank := range ranksOfJob {
		host.Ranks = append(host.Ranks, protocol.Rank{Rank: rank, PID: 100 + rank, State: "R", Started: time.Unix(1_800_000_000, 0), CPUSeconds: float64(step), BytesRead: step << 20})
	}
	body, err := json.Marshal(&protocol.Activity{Time: time.Now(), Hosts: []protocol.Host{host}, Progress: &protocol.Progress{
		Step: &step, Of: 1_000_000, Metrics: []protocol.Metric{{Name: "loss", Value: fmt.Sprint(1 / float64(step))}},
	}})
	if err != nil {
		return time.Second
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, one.url, bytes.NewReader(body))
	if err != nil {
		return time.Second
	}
	request.Header.Set("Authorization", "Bearer "+one.token)
	response, err := one.client.Do(request)
	if err != nil {
		return time.Second
	}
	defer response.Body.Close()
	var reply protocol.ActivityReply
	if json.NewDecoder(response.Body).Decode(&reply) != nil || response.StatusCode != http.StatusOK {
		return time.Second
	}
	one.reports++
	return time.Duration(reply.IntervalSeconds) * time.Second
}

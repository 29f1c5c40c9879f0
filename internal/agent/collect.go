// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// ranksRequest asks a worker for the ranks on its host.
const ranksRequest = "ranks@trireme"

const (
	// collectPatience is how long a host may take to answer. Later answers are dropped.
	collectPatience = 5 * time.Second
	// examineDuration is how much longer an examination may take.
	examineDuration = 5 * time.Second
	// maxRanksReply fits into an SSH packet.
	maxRanksReply = 192 << 10
	// maxUnknown limits the text that says why the ranks of a host are not known.
	maxUnknown = 200
)

// ranksQuestion is the payload of ranksRequest.
type ranksQuestion struct {
	Examine bool `json:"examine,omitempty"`
	// Peers has the names of the job's hosts by address. It is only set with Examine.
	Peers map[string]string `json:"peers,omitempty"`
}

// answerRanks answers ranksRequest.
func (w *Worker) answerRanks(payload []byte) any {
	var question ranksQuestion
	if json.Unmarshal(payload, &question) != nil {
		return nil
	}
	host := w.ranks.host(question)
	if text, err := json.Marshal(host); err != nil || len(text) > maxRanksReply {
		return protocol.Host{Unknown: "it has too many ranks for one answer"}
	}
	return host
}

// host returns the ranks below the agent.
func (rr *rankReader) host(question ranksQuestion) protocol.Host {
	ranks := rr.read()
	if question.Examine && len(ranks) <= protocol.MaxRanksOfHost {
		rr.examining.Lock()
		examine(ranks, question.Peers, instructionPointer)
		rr.examining.Unlock()
	}
	return hostOf(ranks)
}

// hostOf is a host with ranks, as far as they are reported.
func hostOf(ranks []rankProcess) protocol.Host {
	if len(ranks) > protocol.MaxRanksOfHost {
		return protocol.Host{Unknown: fmt.Sprintf("it has more than %d ranks", protocol.MaxRanksOfHost)}
	}
	var host protocol.Host
	for _, one := range ranks {
		host.Ranks = append(host.Ranks, one.Rank)
	}
	return host
}

// collector collects the ranks of all hosts of a job.
type collector struct {
	// self is the launcher's own host; workers are the others.
	self    string
	local   *rankReader
	workers []*collectedHost
	turns   chan struct{}
}

// collectedHost is a worker, with a connection that stays open.
type collectedHost struct {
	endpoint workerEndpoint
	// isBusy is set while a request is under way. A host that does not answer is not asked
	// again before the request has failed.
	isBusy atomic.Bool
	// keepOpen is not set for the hosts of large jobs: a thousand open connections would
	// need too much memory.
	keepOpen bool
	// address is the last known address.
	address atomic.Pointer[string]
}

func newCollector(self string, caller *client, hosts []string) *collector {
	c := &collector{self: self, local: newRankReader(), turns: make(chan struct{}, gateParallel)}
	for i, host := range unique(hosts) {
		c.workers = append(c.workers, &collectedHost{endpoint: workerEndpoint{client: caller, host: host}, keepOpen: i < maxKept})
	}
	return c
}

// collect asks all hosts at the same time. The result has an entry for each host, also for
// those that do not answer in time.
func (c *collector) collect(ctx context.Context, examine bool) []protocol.Host {
	patience, question := collectPatience, ranksQuestion{Examine: examine}
	if examine {
		patience, question.Peers = patience+examineDuration, c.peers()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	hosts := make([]protocol.Host, len(c.workers)+1)
	type result struct {
		at   int
		host protocol.Host
	}
	results := make(chan result, len(hosts)) // Nobody blocks on it after the deadline.
	missing := 1
	go func() { results <- result{len(c.workers), c.local.host(question)} }()
	hosts[len(c.workers)] = protocol.Host{Name: c.self, Unknown: noAnswer}
	for i, worker := range c.workers {
		hosts[i] = protocol.Host{Name: worker.endpoint.host, Unknown: noAnswer}
		if !worker.isBusy.CompareAndSwap(false, true) {
			continue
		}
		missing++
		go func() { results <- result{i, c.ask(ctx, worker, question)} }()
	}
	for ; missing > 0; missing-- {
		select {
		case one := <-results:
			one.host.Name = hosts[one.at].Name
			hosts[one.at] = one.host
		case <-ctx.Done():
			return hosts
		}
	}
	return hosts
}

const noAnswer = "it does not answer in time"

// ask asks one worker.
func (c *collector) ask(ctx context.Context, worker *collectedHost, question ranksQuestion) protocol.Host {
	defer worker.isBusy.Store(false)
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return protocol.Host{Unknown: noAnswer}
	}
	var host protocol.Host
	err := worker.endpoint.ask(ctx, ranksRequest, question, &host)
	if err != nil {
		return protocol.Host{Unknown: shorten(err.Error(), maxUnknown)}
	}
	address := worker.endpoint.remote
	worker.address.Store(&address)
	if !worker.keepOpen {
		worker.endpoint.close()
	}
	return host
}

// peers has the names of the workers by address.
func (c *collector) peers() map[string]string {
	peers := map[string]string{}
	for _, worker := range c.workers {
		if address := worker.address.Load(); address != nil {
			peers[*address] = worker.endpoint.host
		}
	}
	return peers
}

// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// watchersAddress makes the test's program the watchers of a benchmark: in a process
// of their own they do not count as the server's memory.
const watchersAddress = "TRIREME_TEST_WATCHERS_ADDRESS"

const watcherCount = 1000

// latencies of changes to watchers: from when it was asked for, and from when the
// server learned of it.
type latencies struct{ Whole, Server []time.Duration }

// beWatchers connects, says "ready", then the number of each change that all have
// seen, and when nobody asks for more how long each took.
func beWatchers(address string) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the server is on this machine, for a moment
	var lock sync.Mutex
	var measured latencies
	synced := 0
	see := func(text []byte) {
		now := time.Now()
		var event struct {
			Type      string
			Timestamp time.Time
			Changes   struct{ ReadyWorkers string }
		}
		if err := json.Unmarshal(text, &event); err != nil {
			panic(err)
		}
		lock.Lock()
		defer lock.Unlock()
		switch event.Type {
		case "SYNCED":
			if synced++; synced == watcherCount {
				fmt.Println("ready")
			}
		case "MODIFIED":
			asked, _, _ := strings.Cut(event.Changes.ReadyWorkers, "/")
			nanoseconds, err := strconv.ParseInt(asked, 10, 64)
			if err != nil {
				panic(err)
			}
			measured.Whole = append(measured.Whole, now.Sub(time.Unix(0, nanoseconds)))
			measured.Server = append(measured.Server, now.Sub(event.Timestamp))
			if len(measured.Whole)%watcherCount == 0 {
				fmt.Println(len(measured.Whole) / watcherCount)
			}
		}
	}
	connecting := make(chan struct{}, 20)
	for range watcherCount {
		connecting <- struct{}{}
		go func() {
			connection, _, err := websocket.Dial(context.Background(), address, &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
			if err != nil {
				panic(err)
			}
			<-connecting
			for {
				_, text, err := connection.Read(context.Background())
				if err != nil {
					return
				}
				see(text)
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	lock.Lock()
	defer lock.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(measured)
}

// watchers are a process of beWatchers.
type watchers struct {
	process *exec.Cmd
	stdin   io.WriteCloser
	lines   *bufio.Reader
}

func startWatchers(b *testing.B, address string) *watchers {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	made := &watchers{process: exec.CommandContext(b.Context(), program)}
	made.process.Env = append(os.Environ(), watchersAddress+"="+address)
	made.process.Stderr = os.Stderr
	if made.stdin, err = made.process.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	stdout, err := made.process.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	made.lines = bufio.NewReader(stdout)
	if err := made.process.Start(); err != nil {
		b.Fatal(err)
	}
	made.expect(b, "ready")
	return made
}

func (watchers *watchers) expect(b *testing.B, wanted string) {
	b.Helper()
	line, err := watchers.lines.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != wanted {
		b.Fatalf("the watchers say %q, want %q: %v", line, wanted, err)
	}
}

// report ends the watchers, and tells what they have measured.
func (watchers *watchers) report(b *testing.B) {
	b.Helper()
	_ = watchers.stdin.Close()
	var measured latencies
	if err := json.NewDecoder(watchers.lines).Decode(&measured); err != nil {
		b.Fatal(err)
	}
	if err := watchers.process.Wait(); err != nil {
		b.Fatal(err)
	}
	for name, all := range map[string][]time.Duration{"": measured.Whole, "-server": measured.Server} {
		slices.Sort(all)
		for unit, one := range map[string]time.Duration{"p50-ms": all[len(all)/2], "p99-ms": all[len(all)*99/100], "max-ms": all[len(all)-1]} {
			b.ReportMetric(float64(one)/float64(time.Millisecond), unit+name)
		}
	}
}

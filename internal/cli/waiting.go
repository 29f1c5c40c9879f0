// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/trireme-mpi/trireme/internal/kube/preflight"
)

// waitingLines is why a job waits, line by line: what for and since when, the place in
// its queue, when it may start, and what to do.
func waitingLines(waiting *preflight.Waiting, now time.Time, calledAs string) []string {
	text := waiting.Message
	if since := waiting.Since; since != nil && !since.IsZero() && !now.Before(since.Time) {
		text = fmt.Sprintf("(for %s) %s", age(now, since.Time), text)
	}
	lines := []string{text}
	if queue := waiting.Queue; queue != nil && len(queue.Ahead) > 0 {
		lines = append(lines, "Ahead in the queue: "+strings.Join(queue.Ahead, ", "))
	}
	if at := waiting.MayStart; at != nil {
		lines = append(lines, "May start: not before "+at.UTC().Format(time.RFC3339))
	}
	if waiting.Remedy != "" {
		lines = append(lines, "To do: "+asTyped(calledAs, waiting.Remedy))
	}
	return lines
}

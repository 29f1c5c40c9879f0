// SPDX-License-Identifier: Apache-2.0

package joblog

import (
	"container/heap"
	"context"
)

// merge passes on the lines of several logs in the order of their time. Within a log the
// order does not change, even if its times are not sorted. It returns false if the
// consumer has stopped.
func merge(ctx context.Context, logs []<-chan Line, pass func(Line) bool) bool {
	var heads lineHeap
	take := func(log int) bool {
		select {
		case line, more := <-logs[log]:
			if more {
				heap.Push(&heads, queued{line: line, order: uint64(log)})
			}
			return true
		case <-ctx.Done():
			return false
		}
	}
	for log := range logs {
		if !take(log) {
			return false
		}
	}
	for heads.Len() > 0 {
		first := heap.Pop(&heads).(queued)
		if !pass(first.line) || !take(int(first.order)) {
			return false
		}
	}
	return true
}

// queued is a waiting line; lines of the same time are sorted by order.
type queued struct {
	line  Line
	order uint64
}

type lineHeap []queued

func (lh lineHeap) Len() int { return len(lh) }
func (lh lineHeap) Less(i, j int) bool {
	if order := lh[i].line.Time.Compare(lh[j].line.Time); order != 0 {
		return order < 0
	}
	return lh[i].order < lh[j].order
}
func (lh lineHeap) Swap(i, j int)  { lh[i], lh[j] = lh[j], lh[i] }
func (lh *lineHeap) Push(line any) { *lh = append(*lh, line.(queued)) }
func (lh *lineHeap) Pop() any {
	old := *lh
	last := old[len(old)-1]
	old[len(old)-1] = queued{}
	*lh = old[:len(old)-1]
	return last
}

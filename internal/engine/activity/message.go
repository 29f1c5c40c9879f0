// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"fmt"
	"strings"
	"time"
)

// shownRanks is the maximum number of ranks in a message.
const shownRanks = 3

// message is a sentence for users. It contains no duration that grows, so that it is
// written once.
func (e explanation) message(after time.Duration, ranks int) string {
	return fmt.Sprintf("No progress for %s: %s", duration(after), e.text(ranks))
}

func (e explanation) text(ranks int) string {
	odd, rest := names(e.odd), ranks-len(e.odd)
	verb := func(one, many string) string {
		if len(e.odd) == 1 {
			return one
		}
		return many
	}
	others := "the other rank waits"
	if rest != 1 {
		others = fmt.Sprintf("the other %d ranks wait", rest)
	}
	switch e.cause {
	case stopped:
		return fmt.Sprintf("%s %s stopped by a signal; %s. Send SIGCONT to it, or restart the job", odd, verb("is", "are"), others)
	case exited:
		return fmt.Sprintf("%s %s exited, and its parent process did not notice; %s. Restart the job", odd, verb("has", "have"), others)
	case unreachableHost:
		return fmt.Sprintf("%s does not answer the launcher (%s), and all ranks on other hosts wait. Check its pod and its node", e.host, e.why)
	case computesAlone:
		return fmt.Sprintf("only %s %s; %s. This is a serial phase, a slow host or an endless loop. Check what %s", odd, verb("computes", "compute"), others, verb("it does", "they do"))
	case behind:
		return fmt.Sprintf("%s %s at step %d, other ranks are at step %d, and all wait. Check the last lines of %s", odd, verb("is", "are"), e.step, e.others, verb("that rank", "these ranks"))
	case sleeps:
		return fmt.Sprintf("%s %s%s; the other %d ranks spin in MPI. Check what %s", odd, verb("sleeps", "sleep"), e.channel(), rest, verb("it waits for", "they wait for"))
	case waitsElsewhere:
		return fmt.Sprintf("%s %s%s; the other %d ranks wait for something else. Check what %s", odd, verb("sleeps", "sleep"), e.channel(), rest, verb("it waits for", "they wait for"))
	case allSleep:
		return fmt.Sprintf("all %d ranks sleep and wait for each other. Check that every send has its receive, and that all ranks call the same collective operations", ranks)
	default:
		return fmt.Sprintf("all %d ranks wait in MPI, and none computes. Check that every send has its receive, and that all ranks call the same collective operations", ranks)
	}
}

// channel is what the odd ranks wait for, if it is the same for all of them.
func (e explanation) channel() string {
	for _, one := range e.odd {
		if one.waitsFor != e.odd[0].waitsFor {
			return ""
		}
	}
	if len(e.odd) == 0 || e.odd[0].waitsFor == "" {
		return ""
	}
	return " in " + e.odd[0].waitsFor
}

// channel is the wait channel of a rank, without the peer of its connection.
func channel(one rankState) string {
	name, _, _ := strings.Cut(one.waitsFor, " ")
	return name
}

// names joins the first few of many ranks.
func names(ranks []rankState) string {
	var parts []string
	for _, one := range ranks[:min(len(ranks), shownRanks)] {
		parts = append(parts, fmt.Sprintf("rank %d on %s", one.rank, one.host))
	}
	text := strings.Join(parts, ", ")
	if more := len(ranks) - shownRanks; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// duration is 15m instead of 15m0s.
func duration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// moreHosts may be reported than the job has pods, because a job may have been scaled down.
	moreHosts = 16
	// bytesOfRest are for everything but ranks; the progress may have 256 metrics.
	bytesOfRest = 256 << 10
	bytesOfRank = 512
	// maxHostLength is the length of a DNS name.
	maxHostLength = 253
	// maxReason, maxWaitsFor, maxState, maxFrame and maxFrames are what is kept of texts.
	maxReason, maxWaitsFor, maxState, maxFrame, maxFrames = 256, 256, 8, 64, 16
)

// Limits are how much a job may report about its ranks. They grow with the pods that it
// has, so that jobs cannot take more of the operator's memory than their share.
type Limits struct {
	Hosts, Ranks int
	// Bytes is the size of the report as JSON.
	Bytes int64
}

// LimitsOf are the limits of a job with so many pods.
func LimitsOf(pods int) Limits {
	ranks := min(max(pods, 1)*protocol.MaxRanksOfHost, protocol.MaxRanks)
	return Limits{Hosts: max(pods, 1) + moreHosts, Ranks: ranks, Bytes: min(bytesOfRest+int64(ranks)*bytesOfRank, protocol.MaxActivityBytes)}
}

// ParseActivity reads a report about all ranks. It stops at the limits. Hosts appear once in
// the result, and texts are cut and printable: they become part of the job's status, of
// events and of the output of commands.
func ParseActivity(body []byte, limits Limits) (*protocol.Activity, error) {
	message := activityMessage{Hosts: hostList{limits: limits, positions: map[string]int{}}}
	if err := json.Unmarshal(body, &message); err != nil {
		return nil, fmt.Errorf("the body is not an activity: %w", err)
	}
	activity := &message.Activity
	activity.Hosts, activity.Kept = message.Hosts.hosts, message.Kept
	if progress := message.Progress; progress != nil {
		activity.Progress = &progress.Progress
		activity.Progress.Metrics = progress.Metrics
		if err := Check(activity.Progress); err != nil {
			return nil, fmt.Errorf("progress: %w", err)
		}
	}
	return activity, nil
}

// activityMessage and its parts decode their lists one element after the other: a list of a
// million empty objects would need a hundred times the memory of its text.
type activityMessage struct {
	protocol.Activity
	Hosts    hostList         `json:"hosts"`
	Progress *progressMessage `json:"progress"`
	Kept     keptList         `json:"kept"`
}

type hostMessage struct {
	protocol.Host
	Ranks rankList `json:"ranks"`
}

type rankMessage struct {
	protocol.Rank
	Stack frameList `json:"stack"`
}

type progressMessage struct {
	protocol.Progress
	Metrics metricList `json:"metrics"`
}

// hostList are the hosts of a message, within its limits.
type hostList struct {
	limits    Limits
	hosts     []protocol.Host
	positions map[string]int
	count     int
	ranks     int
}

// UnmarshalJSON implements json.Unmarshaler.
func (hl *hostList) UnmarshalJSON(text []byte) error {
	return eachElement(text, func(decoder *json.Decoder) error {
		if hl.count == hl.limits.Hosts {
			return fmt.Errorf("it has more than %d hosts, more than the job has pods", hl.limits.Hosts)
		}
		hl.count++
		host := hostMessage{Ranks: rankList{list: hl}}
		if err := decoder.Decode(&host); err != nil {
			return err
		}
		if len(host.Name) > maxHostLength {
			return fmt.Errorf("hosts[%d].name has %d bytes; at most %d are allowed", hl.count-1, len(host.Name), maxHostLength)
		}
		host.Host.Name, host.Unknown = shown(host.Name, maxHostLength), shown(host.Unknown, maxReason)
		if host.Unknown == "" {
			host.Host.Ranks = host.Ranks.ranks
		}
		hl.add(host.Host)
		return nil
	})
}

// add merges a host that is already in the list.
func (hl *hostList) add(host protocol.Host) {
	at, known := hl.positions[host.Name]
	if !known {
		hl.positions[host.Name] = len(hl.hosts)
		hl.hosts = append(hl.hosts, host)
		return
	}
	first := &hl.hosts[at]
	switch {
	case len(host.Ranks) == 0:
	case first.Unknown != "":
		*first = host
	default:
		first.Ranks = append(first.Ranks, host.Ranks...)
	}
}

// rankList are the ranks of a host.
type rankList struct {
	list  *hostList
	ranks []protocol.Rank
}

// UnmarshalJSON implements json.Unmarshaler.
func (rl *rankList) UnmarshalJSON(text []byte) error {
	return eachElement(text, func(decoder *json.Decoder) error {
		if rl.list.ranks == rl.list.limits.Ranks {
			return fmt.Errorf("it has more than %d ranks, the most for a job of this many pods", rl.list.limits.Ranks)
		}
		rl.list.ranks++
		var message rankMessage
		if err := decoder.Decode(&message); err != nil {
			return err
		}
		rank := message.Rank
		rank.Stack = message.Stack
		if rank.Rank < 0 || rank.Rank > math.MaxInt32 {
			return fmt.Errorf("rank is %d; it must be between 0 and %d", rank.Rank, math.MaxInt32)
		}
		rank.State, rank.Doing, rank.WaitsFor = shown(rank.State, maxState), knownDoing(rank.Doing), shown(rank.WaitsFor, maxWaitsFor)
		rl.ranks = append(rl.ranks, rank)
		return nil
	})
}

// frameList has the innermost frames of a stack.
type frameList []string

// UnmarshalJSON implements json.Unmarshaler.
func (fl *frameList) UnmarshalJSON(text []byte) error {
	return eachElement(text, func(decoder *json.Decoder) error {
		if len(*fl) == maxFrames {
			return errEnough
		}
		var frame string
		err := decoder.Decode(&frame)
		*fl = append(*fl, shown(frame, maxFrame))
		return err
	})
}

// metricList are the metrics of a progress.
type metricList []protocol.Metric

// UnmarshalJSON implements json.Unmarshaler.
func (ml *metricList) UnmarshalJSON(text []byte) error {
	return eachElement(text, func(decoder *json.Decoder) error {
		if len(*ml) == protocol.MaxMetrics {
			return fmt.Errorf("progress.metrics has more than %d entries", protocol.MaxMetrics)
		}
		var metric protocol.Metric
		err := decoder.Decode(&metric)
		*ml = append(*ml, metric)
		return err
	})
}

// keptList are metrics over time that an agent has kept, as many as an operator has.
type keptList []protocol.Curve

// UnmarshalJSON implements json.Unmarshaler.
func (kl *keptList) UnmarshalJSON(text []byte) error {
	*kl = keptList{}
	return eachElement(text, func(decoder *json.Decoder) error {
		if len(*kl) == protocol.MaxCurves {
			return errEnough
		}
		var curve struct {
			Name   string    `json:"name"`
			Points pointList `json:"points"`
		}
		err := decoder.Decode(&curve)
		if length := utf8.RuneCountInString(curve.Name); length > 0 && length <= protocol.MaxMetricLength {
			*kl = append(*kl, protocol.Curve{Name: curve.Name, Points: curve.Points})
		}
		return err
	})
}

// pointList are the points of a curve.
type pointList []protocol.Point

// UnmarshalJSON implements json.Unmarshaler.
func (pl *pointList) UnmarshalJSON(text []byte) error {
	return eachElement(text, func(decoder *json.Decoder) error {
		if len(*pl) == protocol.MaxPoints {
			return errEnough
		}
		var point protocol.Point
		err := decoder.Decode(&point)
		*pl = append(*pl, point)
		return err
	})
}

// errEnough ends a list whose other elements are ignored.
var errEnough = errors.New("enough")

// eachElement decodes the elements of a list.
func eachElement(text []byte, decode func(*json.Decoder) error) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	start, err := decoder.Token()
	if err != nil || start == nil {
		return err
	}
	if start != json.Delim('[') {
		return fmt.Errorf("%v is not a list", start)
	}
	for decoder.More() {
		err := decode(decoder)
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// knownDoing is empty for what only a newer agent can tell.
func knownDoing(doing protocol.Doing) protocol.Doing {
	switch doing {
	case protocol.Computing, protocol.SpinningInMPI, protocol.Sleeping, protocol.StoppedBySignal:
		return doing
	}
	return ""
}

// shown is a text that is safe to show, cut between characters.
func shown(text string, limit int) string {
	isLong := len(text) > limit
	if !isLong && !strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return text
	}
	if isLong {
		end := limit
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	// A copy, because the rest of a long text must not stay in memory.
	text = strings.Clone(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")))
	if isLong {
		text += "…"
	}
	return text
}

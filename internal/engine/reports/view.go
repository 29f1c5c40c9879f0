// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// What Trireme's server reads from the leading operator.
const (
	// ReadAudience is the audience of the server's token for the operator.
	ReadAudience = "trireme-reports"
	// ReadPermission is the path that the server must have the permission to get.
	ReadPermission = "/reports"

	PartRanks  = "ranks"
	PartCurves = "curves"
)

// ReadPath is the path of a part of a job's reports.
func ReadPath(kind job.Kind, namespace, name, part string) string {
	return fmt.Sprintf("%s/namespaces/%s/%ss/%s/%s", ReadPermission, namespace, kind.Type(), name, part)
}

// JobRanks are all ranks of a job, as its agents last reported them.
type JobRanks struct {
	// ReportedTime is when the operator received the report; null if there was none.
	ReportedTime *time.Time `json:"reportedTime"`
	Ranks        []Rank     `json:"ranks"`
	// UnknownHosts are hosts whose ranks are not known, and why.
	UnknownHosts []UnknownHost `json:"unknownHosts"`
}

// Rank is one process of MPI_COMM_WORLD.
type Rank struct {
	protocol.Rank
	Host string `json:"host"`
}

// UnknownHost is a host whose ranks are not known.
type UnknownHost struct {
	Host   string `json:"host"`
	Reason string `json:"reason"`
}

// JobCurves are the metrics of a job over time.
type JobCurves struct {
	Curves []Curve `json:"curves"`
}

// RanksOf are the ranks of a report; nil is no report.
func RanksOf(report *protocol.Activity, receivedAt time.Time) JobRanks {
	ranks := JobRanks{Ranks: []Rank{}, UnknownHosts: []UnknownHost{}}
	if report == nil {
		return ranks
	}
	ranks.ReportedTime = &receivedAt
	for _, host := range report.Hosts {
		if host.Unknown != "" {
			ranks.UnknownHosts = append(ranks.UnknownHosts, UnknownHost{Host: host.Name, Reason: host.Unknown})
		}
		for _, rank := range host.Ranks {
			ranks.Ranks = append(ranks.Ranks, Rank{Rank: rank, Host: host.Name})
		}
	}
	return ranks
}

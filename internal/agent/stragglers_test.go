// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// A run that hangs because a worker was lost has another reason than one whose ranks
// exited without MPI_Finalize.
func TestStuckReport(t *testing.T) {
	for name, tc := range map[string]struct {
		trouble    protocol.Trouble
		wantReason string
	}{
		"ranks exited":           {"", protocol.ReasonTraining},
		"a worker stopped":       {protocol.Stopped, protocol.ReasonWorker},
		"a connection broke":     {protocol.Broken, protocol.ReasonWorker},
		"a host had no such MPI": {protocol.NotStarted, protocol.ReasonTraining},
	} {
		t.Run(name, func(t *testing.T) {
			records := recordsFile(filepath.Join(t.TempDir(), "records"))
			began := time.Unix(1000, 0)
			records.write(record{Host: "one", At: began})
			records.write(record{Host: "two", At: began})
			if tc.trouble != "" {
				records.write(record{Host: "two", Trouble: tc.trouble, At: began.Add(time.Second)})
			}
			records.write(record{Host: "two", Ended: true, At: began.Add(2 * time.Second)})
			if host, since := firstFinished(records.read()); host != "two" || !since.Equal(began.Add(2*time.Second)) {
				t.Errorf("%q straggles since %s, want two", host, since)
			}
			report := (&launch{records: records, hosts: []string{"one", "two"}}).stuckReport("two")
			if report.Reason != tc.wantReason || report.Host != "two" || report.ExitCode != exitMPI || report.Hosts.Reached != 2 {
				t.Errorf("the report is %+v, want %s of two", report, tc.wantReason)
			}
		})
	}
}

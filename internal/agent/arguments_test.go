// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// orted is what Open MPI 4 has the worker do, as one argument.
const orted = `orted -mca ess "env" -mca ess_base_jobid "4164354048" -mca ess_base_vpid 1 -mca orte_hnp_uri "4164354048.0;tcp://10.0.0.1:35201"`

func TestParseCall(t *testing.T) {
	tests := map[string]struct {
		arguments []string
		want      call
		wantErr   string
	}{
		"Open MPI 4": {
			arguments: []string{"train-worker-0", orted},
			want:      call{host: "train-worker-0", command: orted},
		},
		"Open MPI 4 that found an ssh and forbids X11": {
			arguments: []string{"-x", "train-worker-0.train", orted},
			want:      call{host: "train-worker-0.train", command: orted},
		},
		"Open MPI 5, whose environment comes before its daemon": {
			arguments: []string{"train-worker-1", "PRTE_PREFIX=/opt/ompi;export PRTE_PREFIX;/opt/ompi/bin/prted --prtemca ess \"env\" --prtemca ess_base_vpid 2 --leave-session-attached"},
			want:      call{host: "train-worker-1", command: "PRTE_PREFIX=/opt/ompi;export PRTE_PREFIX;/opt/ompi/bin/prted --prtemca ess \"env\" --prtemca ess_base_vpid 2 --leave-session-attached"},
		},
		"MPICH's Hydra, in many arguments": {
			arguments: []string{"-x", "train-worker-0", `"/usr/bin/hydra_pmi_proxy"`, "--control-port", "train-launcher:40001", "--rmk", "user", "--launcher", "ssh", "--pgid", "0", "--proxy-id", "1"},
			want:      call{host: "train-worker-0", command: `"/usr/bin/hydra_pmi_proxy" --control-port train-launcher:40001 --rmk user --launcher ssh --pgid 0 --proxy-id 1`},
		},
		"Intel's Hydra, quiet": {
			arguments: []string{"-q", "-x", "train-worker-0", "/opt/intel/mpi/bin/hydra_bstrap_proxy", "--upstream-host", "train-launcher", "--upstream-port", "36001", "--launcher", "ssh", "--launcher-number", "0"},
			want:      call{host: "train-worker-0", command: "/opt/intel/mpi/bin/hydra_bstrap_proxy --upstream-host train-launcher --upstream-port 36001 --launcher ssh --launcher-number 0"},
		},
		"horovodrun, with options after the host": {
			arguments: []string{"-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=no", "train-worker-0", "-p", "22", "bash -c 'cd /work && true'"},
			want:      call{host: "train-worker-0", port: 22, command: "bash -c 'cd /work && true'"},
		},
		"a user before the host":   {arguments: []string{"mpiuser@worker", "true"}, want: call{user: "mpiuser", host: "worker", command: "true"}},
		"a user as an option":      {arguments: []string{"-l", "mpiuser", "worker", "true"}, want: call{user: "mpiuser", host: "worker", command: "true"}},
		"a user as a setting":      {arguments: []string{"-o", "User=mpiuser", "worker"}, want: call{user: "mpiuser", host: "worker"}},
		"a port as a setting":      {arguments: []string{"-oPort=2022", "worker"}, want: call{port: 2022, host: "worker"}},
		"a setting with a space":   {arguments: []string{"-o", "Port 2022", "worker"}, want: call{port: 2022, host: "worker"}},
		"a setting in other case":  {arguments: []string{"-oPORT = 2022", "worker"}, want: call{port: 2022, host: "worker"}},
		"a port beside its letter": {arguments: []string{"-p2222", "worker"}, want: call{port: 2222, host: "worker"}},
		"letters together":         {arguments: []string{"-xqTp", "2222", "worker", "true"}, want: call{port: 2222, host: "worker", command: "true"}},
		"letters and a value":      {arguments: []string{"-4xp2222", "worker", "true"}, want: call{port: 2222, host: "worker", command: "true"}},
		"a file, which is ignored": {arguments: []string{"-i", "/etc/key", "-F/dev/null", "worker", "true"}, want: call{host: "worker", command: "true"}},
		"a command with options":   {arguments: []string{"worker", "ls", "-p", "0"}, want: call{host: "worker", command: "ls -p 0"}},
		"an end of options":        {arguments: []string{"-x", "--", "worker", "-odd", "x"}, want: call{host: "worker", command: "-odd x"}},
		"an end after the host":    {arguments: []string{"worker", "--", "-odd", "x"}, want: call{host: "worker", command: "-odd x"}},
		"no command":               {arguments: []string{"worker"}, want: call{host: "worker"}},
		"nothing":                  {wantErr: "no host"},
		"only options":             {arguments: []string{"-x", "-p", "22"}, wantErr: "no host"},
		"only an end of options":   {arguments: []string{"--"}, wantErr: "no host"},
		"a user without a host":    {arguments: []string{"mpiuser@"}, wantErr: "no host"},
		"a port that is a word":    {arguments: []string{"-p", "ssh", "worker"}, wantErr: "not a port"},
		"a port that is too high":  {arguments: []string{"-p65536", "worker"}, wantErr: "not a port"},
		"a port below 1":           {arguments: []string{"-oPort=0", "worker"}, wantErr: "not a port"},
		"an option without value":  {arguments: []string{"worker", "-p"}, wantErr: "needs a value"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseCall(tc.arguments)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("error %v, want it to contain %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, *got, cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("call (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseCall(f *testing.F) {
	f.Add("-x\x00train-worker-0\x00" + orted)
	f.Add("-oPort=22\x00-l\x00u\x00--\x00h\x00c")
	f.Add("-p\x00-1\x00h")
	f.Add("u@\x00-\x00--")
	f.Fuzz(func(t *testing.T, joined string) {
		arguments := strings.Split(joined, "\x00")
		got, err := parseCall(arguments)
		if err != nil {
			return
		}
		if got.host == "" || got.port < 0 || got.port > 65535 {
			t.Errorf("host %q, port %d", got.host, got.port)
		}
		if !strings.HasSuffix(strings.Join(arguments, " "), got.command) {
			t.Errorf("command %q is not the end of the arguments", got.command)
		}
	})
}

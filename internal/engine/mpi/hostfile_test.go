// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHostfile(t *testing.T) {
	hosts := []Host{{"train-worker-0", 2}, {"train-worker-1.train.default.svc", 8}}
	tests := map[string]struct {
		implementation Implementation
		hosts          []Host
		want           string
	}{
		"Open MPI":  {implementation: OpenMPI, hosts: hosts, want: "train-worker-0 slots=2\ntrain-worker-1.train.default.svc slots=8\n"},
		"Intel MPI": {implementation: IntelMPI, hosts: hosts, want: "train-worker-0:2\ntrain-worker-1.train.default.svc:8\n"},
		"MPICH":     {implementation: MPICH, hosts: hosts, want: "train-worker-0:2\ntrain-worker-1.train.default.svc:8\n"},
		"no hosts":  {implementation: OpenMPI},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Hostfile(tc.implementation, tc.hosts)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("hostfile (-want +got):\n%s", diff)
			}
			back, err := ParseHostfile(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.hosts, back); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseHostfile(t *testing.T) {
	tests := map[string]struct {
		text    string
		want    []Host
		wantErr string
	}{
		"comments, blank lines and no last newline": {
			text: "# made by hand\n\n a slots=2 # two\n\t\nb:3\r\nc", want: []Host{{"a", 2}, {"b", 3}, {"c", 1}},
		},
		"other options are ignored":              {text: "a slots=2 max_slots=4\nb:1 binding=map=0\n", want: []Host{{"a", 2}, {"b", 1}}},
		"nothing":                                {},
		"only comments":                          {text: "# nobody\n"},
		"slots that are a word":                  {text: "a slots=2\nb slots=many\n", wantErr: `hostfile line 2: host b: slots "many" is not a number from 1 to 1048576`},
		"no slots at all":                        {text: "a slots=0", wantErr: `hostfile line 1: host a: slots "0" is not a number from 1 to 1048576`},
		"less than nothing":                      {text: "a:-1", wantErr: `hostfile line 1: host a: slots "-1" is not a number from 1 to 1048576`},
		"more than an int":                       {text: "a:99999999999999999999", wantErr: `hostfile line 1: host a: slots "99999999999999999999" is not a number from 1 to 1048576`},
		"a colon and no number":                  {text: "a:", wantErr: `hostfile line 1: host a: slots "" is not a number from 1 to 1048576`},
		"slots twice":                            {text: "\na:2 slots=3", wantErr: "hostfile line 2: host a has two numbers of slots"},
		"no name":                                {text: ":2", wantErr: `hostfile line 1: "" is not a host name`},
		"slots before the name":                  {text: "slots=2", wantErr: `hostfile line 1: "slots=2" is not a host name`},
		"what an agent would take for an option": {text: "-oProxyCommand", wantErr: `hostfile line 1: "-oProxyCommand" is not a host name`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseHostfile(tc.text)
			gotErr := ""
			if err != nil {
				gotErr = err.Error()
			}
			if diff := cmp.Diff(tc.wantErr, gotErr); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseHostfile(f *testing.F) {
	for _, text := range []string{"a slots=2\nb:3\n", "# c\n\na", "a:", ":1", "a slots=\x00", "a:2 slots=3"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ParseHostfile(text)
		if err != nil {
			return
		}
		for _, implementation := range []Implementation{OpenMPI, MPICH} {
			back, err := ParseHostfile(Hostfile(implementation, hosts))
			if err != nil {
				t.Fatalf("%v does not read back: %v", hosts, err)
			}
			if diff := cmp.Diff(hosts, back); diff != "" {
				t.Errorf("%s (-read +read back):\n%s", implementation, diff)
			}
		}
	})
}

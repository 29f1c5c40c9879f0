// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithoutNoise(t *testing.T) {
	const five = "[train-launcher:00378] plm:ssh: Warning: setpgid(382,382) failed in parent with errno=Permission denied(13)\n"
	const four = "[train-launcher:00021] plm:rsh: Warning: setpgid(25,25) failed in parent with errno=Permission denied(13)\n"
	const child = "[train-launcher:00378] plm:ssh: Error: setpgid(0,0) failed in child with errno=Operation not permitted(1)\n"
	const other = "[train-launcher:00378] plm:ssh: Warning: setpgid(382,382) failed in parent with errno=No such process(3)\n"
	tests := map[string]struct{ output, want string }{
		"nothing":                    {},
		"Open MPI 5":                 {output: five},
		"Open MPI 4":                 {output: four},
		"once for each host":         {output: five + five},
		"between other lines":        {output: "before\n" + five + "\nafter", want: "before\n\nafter"},
		"another cause":              {output: other, want: other},
		"an error of the child":      {output: child, want: child},
		"output of a rank":           {output: "see " + five, want: "see " + five},
		"a line that is not ended":   {output: "[ 10%] Warning: setpgid(", want: "[ 10%] Warning: setpgid("},
		"bytes that are not a text":  {output: "\x00\xff" + five, want: "\x00\xff" + five},
		"a line that is overwritten": {output: five + "step 1\r", want: "step 1\r"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, string(WithoutNoise([]byte(tc.output)))); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

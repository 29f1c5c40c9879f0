// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRankOf(t *testing.T) {
	tests := map[string]struct {
		environment []string
		want        int
		wantRank    bool
	}{
		"Open MPI":                {environment: []string{"A=b", "OMPI_COMM_WORLD_RANK=3", "PMIX_RANK=3"}, want: 3, wantRank: true},
		"PRRTE":                   {environment: []string{"PMIX_NAMESPACE=x", "PMIX_RANK=12"}, want: 12, wantRank: true},
		"Hydra":                   {environment: []string{"PMI_RANK=0", "PMI_SIZE=4"}, want: 0, wantRank: true},
		"none":                    {environment: []string{"PATH=/bin", "OMPI_COMM_WORLD_SIZE=4"}},
		"nothing":                 {},
		"the end of another name": {environment: []string{"MY_PMI_RANK=4"}},
		"another name first":      {environment: []string{"MY_PMI_RANK=4", "PMI_RANK=5"}, want: 5, wantRank: true},
		"the start of a name":     {environment: []string{"PMI_RANKS=4"}},
		"in a value":              {environment: []string{"A=PMI_RANK=4"}},
		"a word":                  {environment: []string{"PMI_RANK=first"}},
		"negative":                {environment: []string{"PMI_RANK=-1"}},
		"empty":                   {environment: []string{"PMI_RANK="}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rank, isRank := RankOf([]byte(strings.Join(tc.environment, "\x00") + "\x00"))
			if rank != tc.want || isRank != tc.wantRank {
				t.Errorf("rank %d, %t; want %d, %t", rank, isRank, tc.want, tc.wantRank)
			}
		})
	}
}

func TestCodeOf(t *testing.T) {
	for file, want := range map[string]Code{
		"/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4":                              MPICode,
		"/usr/lib/x86_64-linux-gnu/libopen-pal.so.80.0.5":                          MPICode,
		"/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3/mca_btl_vader.so":          MPICode,
		"/usr/lib/x86_64-linux-gnu/libmpich.so.12.3.1":                             MPICode,
		"/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0.0.0":                         MPICode,
		"/usr/lib/x86_64-linux-gnu/libucp.so.0.0.0":                                MPICode,
		"/usr/lib/x86_64-linux-gnu/libfabric.so.1.28.0":                            MPICode,
		"/usr/local/lib/libfabric/prov/libtcp-fi.so":                               MPICode,
		"/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav59.so":                  MPICode,
		"/usr/local/lib/libmpi.so.12":                                              MPICode,
		"/usr/local/lib/python3.13/site-packages/mpich.libs/libmpi-1a2b3c4d.so.12": MPICode,
		"/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2.13.6":                    MPICode,
		"/usr/lib/x86_64-linux-gnu/libpsm2.so.2.2":                                 MPICode,
		"/usr/lib/x86_64-linux-gnu/libc.so.6":                                      SystemCode,
		"/lib/x86_64-linux-gnu/libc-2.31.so":                                       SystemCode,
		"/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2":                           SystemCode,
		"[vdso]":                                    SystemCode,
		"/usr/lib/x86_64-linux-gnu/libm.so.6":       ProgramCode,
		"/usr/lib/x86_64-linux-gnu/libcuda.so.1":    ProgramCode,
		"/usr/lib/x86_64-linux-gnu/libcublas.so.12": ProgramCode,
		"/usr/bin/python3.13":                       ProgramCode,
		"/usr/lib/python3/dist-packages/mpi4py/MPI.cpython-313-x86_64-linux-gnu.so": ProgramCode,
		"": ProgramCode,
	} {
		if got := CodeOf(file); got != want {
			t.Errorf("%s is %d, want %d", file, got, want)
		}
	}
}

func TestCutTag(t *testing.T) {
	tests := map[string]struct {
		line     string
		isTagged bool
		want     int
		wantText string
	}{
		"Open MPI 4":            {line: "[1,3]<stdout>:step 1", want: 3, wantText: "step 1"},
		"Open MPI 5":            {line: "[prterun-train-launcher-0-1@1,12]<stderr>: step 1", want: 12, wantText: "step 1"},
		"Hydra":                 {line: "[2] step 1", isTagged: true, want: 2, wantText: "step 1"},
		"Hydra's, not tagged":   {line: "[2] step 1", want: -1, wantText: "[2] step 1"},
		"a time":                {line: "[12:30] step 1", isTagged: true, want: -1, wantText: "[12:30] step 1"},
		"a list":                {line: "[1,2]", isTagged: true, want: -1, wantText: "[1,2]"},
		"a bracket":             {line: "[", isTagged: true, want: -1, wantText: "["},
		"brackets":              {line: "[]<stdout>:", isTagged: true, want: -1, wantText: "[]<stdout>:"},
		"nothing":               {isTagged: true, want: -1},
		"a negative rank":       {line: "[-1] a", isTagged: true, want: -1, wantText: "[-1] a"},
		"an empty line of rank": {line: "[1,0]<stdout>:", want: 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rank, text := CutTag([]byte(tc.line), tc.isTagged)
			if rank != tc.want || string(text) != tc.wantText {
				t.Errorf("rank %d, %q; want %d, %q", rank, text, tc.want, tc.wantText)
			}
		})
	}
}

// CutTag and the patterns for error output read the same tags.
func TestCutTagAgreesWithPatterns(t *testing.T) {
	files, err := filepath.Glob("testdata/output/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	tagged := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			line = strings.TrimSuffix(line, "\n")
			want := -1
			if tag := linePatterns().openMPITag.FindStringSubmatchIndex(line); tag != nil && tag[0] == 0 {
				want = number(line[tag[2]:tag[3]], -1)
			} else if tag := linePatterns().hydraTag.FindStringSubmatch(line); tag != nil {
				want = number(tag[1], -1)
			}
			if want >= 0 {
				tagged++
			}
			if got, _ := CutTag([]byte(line), true); got != want {
				t.Errorf("%s: rank %d of %q, want %d", file, got, line, want)
			}
		}
	}
	if tagged < 20 {
		t.Errorf("only %d tagged lines", tagged)
	}
}

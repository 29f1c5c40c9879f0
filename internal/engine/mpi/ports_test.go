// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPortsOf(t *testing.T) {
	tests := map[string]struct {
		environment []string
		arguments   []string
		want        Ports
	}{
		"nothing is set": {environment: []string{"PATH=/bin", "OMPI_MCA_btl=tcp,self"}, arguments: []string{"mpirun", "-np", "4", "train", "--port", "80", "x"}},
		"Open MPI, by variables": {
			environment: []string{"OMPI_MCA_btl_tcp_port_min_v4=10000", "OMPI_MCA_btl_tcp_port_range_v4=100", "OMPI_MCA_oob_tcp_dynamic_ipv4_ports=11000-11099"},
			want:        Ports{Launcher: PortRanges{{11000, 11099}}, Ranks: PortRanges{{10000, 10099}}},
		},
		"Open MPI, by options": {
			arguments: []string{"mpirun", "--mca", "btl_tcp_port_min_v4", "10000", "-mca", "btl_tcp_port_range_v4", "100", "--mca", "oob_tcp_static_ipv4_ports", "11000", "train"},
			want:      Ports{Launcher: PortRanges{{11000, 11000}}, Ranks: PortRanges{{10000, 10099}}},
		},
		"Open MPI, by a script": {
			arguments: []string{"sh", "-c", "set -e; exec mpirun \\\n  --mca btl_tcp_port_min_v4 \"10000\" \\\n  --mca btl_tcp_port_range_v4 '100'; echo done"},
			want:      Ports{Ranks: PortRanges{{10000, 10099}}},
		},
		"Open MPI, options win": {
			environment: []string{"OMPI_MCA_btl_tcp_port_min_v4=10000", "OMPI_MCA_btl_tcp_port_range_v4=100"},
			arguments:   []string{"mpirun", "--mca", "btl_tcp_port_min_v4", "20000", "train"},
			want:        Ports{Ranks: PortRanges{{20000, 20099}}},
		},
		"Open MPI, no number":      {environment: []string{"OMPI_MCA_btl_tcp_port_min_v4=40000"}, want: Ports{Ranks: PortRanges{{40000, 65535}}}},
		"Open MPI, no first":       {environment: []string{"OMPI_MCA_btl_tcp_port_range_v4=100"}, want: Ports{Ranks: PortRanges{{1024, 1123}}}},
		"Open MPI, past the end":   {environment: []string{"OMPI_MCA_btl_tcp_port_min_v4=65000", "OMPI_MCA_btl_tcp_port_range_v4=1000"}, want: Ports{Ranks: PortRanges{{65000, 65535}}}},
		"Open MPI, a list":         {environment: []string{"OMPI_MCA_oob_tcp_dynamic_ipv4_ports=8000,8080-8090"}, want: Ports{Launcher: PortRanges{{8000, 8000}, {8080, 8090}}}},
		"Open MPI, none by -1":     {environment: []string{"OMPI_MCA_oob_tcp_static_ipv4_ports=-1", "OMPI_MCA_oob_tcp_dynamic_ipv4_ports=8000"}, want: Ports{Launcher: PortRanges{{8000, 8000}}}},
		"PRRTE, by a variable":     {environment: []string{"PRTE_MCA_oob_tcp_dynamic_ipv4_ports=8000-8010"}, want: Ports{Launcher: PortRanges{{8000, 8010}}}},
		"PRRTE, by its new name":   {environment: []string{"PRTE_MCA_prte_static_ipv4_ports=8000"}, want: Ports{Launcher: PortRanges{{8000, 8000}}}},
		"PRRTE, by an option":      {arguments: []string{"mpirun", "--prtemca", "oob_tcp_dynamic_ipv4_ports", "8000-8010", "train"}, want: Ports{Launcher: PortRanges{{8000, 8010}}}},
		"Intel MPI":                {environment: []string{"I_MPI_PORT_RANGE=50000:50500"}, want: Ports{Launcher: PortRanges{{50000, 50500}}, Ranks: PortRanges{{50000, 50500}}}},
		"Intel MPI, -genv":         {arguments: []string{"mpirun", "-genv", "I_MPI_PORT_RANGE", "50000:50500", "train"}, want: Ports{Launcher: PortRanges{{50000, 50500}}, Ranks: PortRanges{{50000, 50500}}}},
		"Intel MPI with libfabric": {environment: []string{"I_MPI_PORT_RANGE=50000:50500", "FI_TCP_PORT_LOW_RANGE=51000", "FI_TCP_PORT_HIGH_RANGE=51010"}, want: Ports{Launcher: PortRanges{{50000, 50500}}, Ranks: PortRanges{{51000, 51010}}}},
		"libfabric, no end":        {environment: []string{"FI_TCP_PORT_LOW_RANGE=51000"}},
		"MPICH":                    {environment: []string{"MPIR_CVAR_CH3_PORT_RANGE=10000:10100"}, want: Ports{Launcher: PortRanges{{10000, 10100}}, Ranks: PortRanges{{10000, 10100}}}},
		"MPICH, the default":       {environment: []string{"MPIR_CVAR_CH3_PORT_RANGE=0:0"}},
		"MPICH, an older name":     {environment: []string{"MPICH_PORT_RANGE=10000:10100"}, want: Ports{Launcher: PortRanges{{10000, 10100}}, Ranks: PortRanges{{10000, 10100}}}},
		"Hydra alone":              {environment: []string{"MPIEXEC_PORT_RANGE=10000:10100"}, want: Ports{Launcher: PortRanges{{10000, 10100}}}},
		"UCX":                      {environment: []string{"UCX_TCP_PORT_RANGE=40000-40009"}, want: Ports{Ranks: PortRanges{{40000, 40009}}}},
		"UCX, by -x":               {arguments: []string{"mpirun", "-x", "UCX_TCP_PORT_RANGE=40000-40009", "train"}, want: Ports{Ranks: PortRanges{{40000, 40009}}}},
		"UCX, the default":         {environment: []string{"UCX_TCP_PORT_RANGE=0"}},
		"by export in a script":    {arguments: []string{"bash", "-c", "export I_MPI_PORT_RANGE=50000:50500\nmpirun train"}, want: Ports{Launcher: PortRanges{{50000, 50500}}, Ranks: PortRanges{{50000, 50500}}}},
		"by a shell's variable":    {arguments: []string{"bash", "-c", "mpirun --mca btl_tcp_port_min_v4 $PORT train"}},
		"nonsense":                 {environment: []string{"I_MPI_PORT_RANGE=many", "MPICH_PORT_RANGE=70000:80000", "UCX_TCP_PORT_RANGE=5-1", "OMPI_MCA_btl_tcp_port_min_v4=-5"}},
		"an option at the end":     {arguments: []string{"mpirun", "--mca"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, PortsOf(tc.environment, tc.arguments)); diff != "" {
				t.Errorf("ports (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSetsPorts(t *testing.T) {
	for _, name := range []string{"OMPI_MCA_btl_tcp_port_min_v4", "PRTE_MCA_oob_tcp_dynamic_ipv4_ports", "I_MPI_PORT_RANGE", "MPIEXEC_PORT_RANGE", "FI_TCP_PORT_HIGH_RANGE", "UCX_TCP_PORT_RANGE"} {
		if !SetsPorts(name) {
			t.Errorf("%s is not known", name)
		}
	}
	for _, name := range []string{"", "PATH", "OMPI_MCA_btl", "AWS_SECRET_ACCESS_KEY"} {
		if SetsPorts(name) {
			t.Errorf("%s sets no ports", name)
		}
	}
}

func TestPortRangesAsText(t *testing.T) {
	for text, want := range map[string]string{"10000:10099": "10000-10099", " 10000 ": "10000", "8000,8080-8090": "8000,8080-8090"} {
		ranges, err := ParsePortRanges(text)
		if err != nil || ranges.String() != want {
			t.Errorf("%q is %q (%v), want %q", text, ranges, err, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package mpi

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEnvironment(t *testing.T) {
	const common = `HYDRA_HOST_FILE=/etc/mpi/hostfile
HYDRA_LAUNCHER=ssh
I_MPI_HYDRA_BOOTSTRAP=ssh
I_MPI_HYDRA_HOST_FILE=/etc/mpi/hostfile
I_MPI_PERHOST=2
OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile
OMPI_MCA_orte_keep_fqdn_hostnames=true
OMPI_MCA_orte_set_default_slots=2
OMPI_MCA_plm_rsh_no_tree_spawn=1
PRTE_MCA_plm_ssh_no_tree_spawn=1
PRTE_MCA_prte_default_hostfile=/etc/mpi/hostfile
PRTE_MCA_prte_keep_fqdn_hostnames=false
PRTE_MCA_prte_set_default_slots=2`
	const agent = `HYDRA_LAUNCHER_EXEC=/trireme/rsh
I_MPI_HYDRA_BOOTSTRAP_EXEC=/trireme/rsh
OMPI_MCA_plm_rsh_agent=/trireme/rsh
PRTE_MCA_plm_ssh_agent=/trireme/rsh`
	tests := map[string]struct {
		launch Launch
		want   []string
	}{
		"our agent": {launch: Launch{Agent: "/trireme/rsh"}, want: []string{common, agent}},
		"our agent is called by its path alone": {
			launch: Launch{Agent: "/trireme/rsh", SSHOptions: "-o ConnectionAttempts=10"}, want: []string{common, agent},
		},
		"the image's ssh": {want: []string{common}},
		"the image's ssh with options": {
			launch: Launch{SSHOptions: "-o ConnectionAttempts=10"},
			want: []string{common, `HYDRA_LAUNCHER_EXTRA_ARGS=-o ConnectionAttempts=10
HYDRA_LAUNCH_EXTRA_ARGS=-o ConnectionAttempts=10
I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=-o ConnectionAttempts=10
OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10
PRTE_MCA_plm_ssh_args=-o ConnectionAttempts=10`},
		},
		"tagged output": {launch: Launch{TagOutput: true}, want: []string{common, "OMPI_MCA_orte_tag_output=1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.launch.Hostfile, tc.launch.Slots = "/etc/mpi/hostfile", 2
			var got []string
			names := map[string]bool{}
			for _, variable := range Environment(tc.launch) {
				if names[variable.Name] {
					t.Errorf("%s is set twice", variable.Name)
				}
				names[variable.Name] = true
				got = append(got, variable.Name+"="+variable.Value)
			}
			want := strings.Split(strings.Join(tc.want, "\n"), "\n")
			byName := func(a, b string) int {
				return strings.Compare(strings.SplitN(a, "=", 2)[0], strings.SplitN(b, "=", 2)[0])
			}
			slices.SortFunc(want, byName)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("environment (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTagFlags(t *testing.T) {
	want := map[Implementation][]string{OpenMPI: {"--tag-output"}, IntelMPI: {"-prepend-rank"}, MPICH: {"-prepend-rank"}, "": nil}
	for implementation, flags := range want {
		if diff := cmp.Diff(flags, TagFlags(implementation)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", implementation, diff)
		}
	}
}

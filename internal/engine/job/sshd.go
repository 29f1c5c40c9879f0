// SPDX-License-Identifier: Apache-2.0

package job

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// StartsSSHD reports whether a command only starts an sshd: directly, or in a shell that
// creates its directory before and sleeps afterwards.
func StartsSSHD(line []string) bool {
	if path.Base(line[0]) == "sshd" {
		return true
	}
	isShell := slices.Contains([]string{"sh", "bash"}, path.Base(line[0])) && len(line) == 3 && line[1] == "-c"
	if !isShell || strings.ContainsAny(line[2], "$`|<>(){}") {
		return false
	}
	starts := false
	for _, step := range scriptSteps.Split(line[2], -1) {
		arguments := strings.Fields(strings.TrimPrefix(strings.TrimSpace(step), "exec "))
		switch {
		case len(arguments) == 0:
		case path.Base(arguments[0]) == "sshd", slices.Equal(arguments, []string{"service", "ssh", "start"}):
			starts = true
		case arguments[0] == "mkdir", slices.Equal(arguments, []string{"sleep", "infinity"}):
		default:
			return false
		}
	}
	return starts
}

// scriptSteps matches the separators of commands in a shell script.
var scriptSteps = regexp.MustCompile(`&&|;|\n`)

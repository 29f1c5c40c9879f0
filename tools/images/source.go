// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const repositoryURL = "https://github.com/trireme-mpi/trireme"

// source identifies the state of the repository that images are built from.
type source struct {
	// commit is followed by "-dirty" if the working tree has other changes.
	commit string
	// time is the only time in images, so that two builds of a commit are equal.
	time time.Time
}

// readSource reads the commit of the repository, and its time unless
// SOURCE_DATE_EPOCH sets it (https://reproducible-builds.org/docs/source-date-epoch).
func readSource(ctx context.Context, repository string) (source, error) {
	head, err := output(ctx, repository, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return source{}, err
	}
	commit, seconds, _ := strings.Cut(strings.TrimSpace(string(head)), " ")
	changes, err := output(ctx, repository, nil, "git", "status", "--porcelain")
	if err != nil {
		return source{}, err
	}
	if len(changes) > 0 {
		commit += "-dirty"
	}
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return source{}, fmt.Errorf("time of the source: SOURCE_DATE_EPOCH must be seconds since 1970: %w", err)
	}
	return source{commit: commit, time: time.Unix(unix, 0).UTC()}, nil
}

// output runs a command in a folder and returns what it prints.
func output(ctx context.Context, folder string, env []string, command string, arguments ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command, arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, &stdout, &stderr
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", command, strings.Join(arguments, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.Bytes(), nil
}

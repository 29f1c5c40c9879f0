// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"os"
	"path/filepath"
)

// claimMark is the file that marks a directory as one of a cluster, which may
// therefore be deleted.
const claimMark = ".trireme-cluster"

// CheckClaim rejects a directory with other files: a user may have set one that is
// in use.
func CheckClaim(directory string) error {
	entries, err := os.ReadDir(directory)
	if os.IsNotExist(err) || err == nil && len(entries) == 0 || Claimed(directory) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", directory, err)
	}
	return fmt.Errorf("directory %s contains other files (%s, ...); use a directory that is empty or does not exist, because `reset` deletes its content",
		directory, entries[0].Name())
}

// Claim creates the directory if it does not exist, and marks it as a cluster's.
func Claim(directory string, mode os.FileMode) error {
	if err := CheckClaim(directory); err != nil {
		return err
	}
	if err := os.MkdirAll(directory, mode); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	// The umask may have removed bits of the mode.
	if err := os.Chmod(directory, mode); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	return os.WriteFile(filepath.Join(directory, claimMark), nil, 0o600)
}

// Claimed tells whether the directory is a cluster's.
func Claimed(directory string) bool {
	_, err := os.Stat(filepath.Join(directory, claimMark))
	return err == nil
}

// IsClaimMark tells whether a file is the mark itself.
func IsClaimMark(file string) bool { return filepath.Base(file) == claimMark }

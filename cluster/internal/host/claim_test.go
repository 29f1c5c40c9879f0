// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClaim(t *testing.T) {
	tests := map[string]struct {
		prepare   func(t *testing.T, directory string)
		wantError string
	}{
		"a directory that does not exist": {prepare: func(*testing.T, string) {}},
		"an empty one":                    {prepare: func(t *testing.T, directory string) { mkdir(t, directory) }},
		"one that is ours already": {prepare: func(t *testing.T, directory string) {
			if err := Claim(directory, 0o700); err != nil {
				t.Fatal(err)
			}
			mkdir(t, filepath.Join(directory, "etcd"))
		}},
		"one that somebody uses": {
			prepare:   func(t *testing.T, directory string) { mkdir(t, filepath.Join(directory, "photos")) },
			wantError: "contains other files (photos, ...); use a directory that is empty",
		},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), "data")
			test.prepare(t, directory)
			err := Claim(directory, 0o711)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) || Claimed(directory) {
					t.Errorf("error is %v, want one with %q and no claim", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o711 || !Claimed(directory) {
				t.Errorf("mode %v, claimed %v (%v)", info.Mode(), Claimed(directory), err)
			}
		})
	}
}

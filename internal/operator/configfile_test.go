// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/engine/config"
)

func TestLoadConfig(t *testing.T) {
	got, err := LoadConfig("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	missing := filepath.Join(t.TempDir(), "config.yaml")
	if _, err = LoadConfig(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("want an error that names the missing file %s, got: %v", missing, err)
	}
	if _, err = LoadConfig(t.TempDir()); err == nil {
		t.Error("a directory was read as a file")
	}
}

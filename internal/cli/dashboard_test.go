// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestBrowser(t *testing.T) {
	const address = "http://127.0.0.1:1234/#code=secret&namespace=vision"
	for name, test := range map[string]struct {
		script    string
		wantError string
	}{
		"opens the page": {
			script: `[ "$#" = 1 ] && cat "$1" >"$HOME/shown" && stat -c %a "$1" >"$HOME/mode" && : >"$HOME/done"`,
		},
		"the browser cannot be started": {script: "exit 3", wantError: "exit status 3. Open the address yourself"},
		"there is no such command":      {wantError: "no such file or directory. Open the address yourself"},
	} {
		t.Run(name, func(t *testing.T) {
			home, programs := t.TempDir(), t.TempDir()
			t.Setenv("HOME", home)
			command := filepath.Join(programs, "xdg-open")
			if test.script != "" {
				if err := os.WriteFile(command, []byte("#!/bin/sh\n"+test.script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var errOut bytes.Buffer
			d := &dashboard{localServer: localServer{environment: &environment{IOStreams: genericiooptions.IOStreams{ErrOut: &errOut}}}}
			if test.wantError == "" {
				go func() {
					defer cancel() // Ctrl-C
					for ctx.Err() == nil {
						if _, err := os.Stat(filepath.Join(home, "done")); err == nil {
							return
						}
						time.Sleep(10 * time.Millisecond)
					}
				}()
			}
			d.open(ctx, command, address)
			if !strings.Contains(errOut.String(), test.wantError) || (test.wantError == "") != (errOut.Len() == 0) {
				t.Errorf("%q, want %q", &errOut, test.wantError)
			}
			if left, _ := filepath.Glob(filepath.Join(home, "*.html")); len(left) > 0 {
				t.Errorf("not removed: %v", left)
			}
			if test.wantError != "" {
				return
			}
			shown, err := os.ReadFile(filepath.Join(home, "shown"))
			if err != nil || !strings.Contains(string(shown), "#code=secret&amp;namespace=vision") {
				t.Errorf("%v: %s", err, shown)
			}
			if mode, _ := os.ReadFile(filepath.Join(home, "mode")); string(mode) != "600\n" {
				t.Errorf("mode %s", mode)
			}
		})
	}
}

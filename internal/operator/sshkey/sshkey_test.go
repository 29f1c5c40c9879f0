// SPDX-License-Identifier: Apache-2.0

package sshkey

import (
	"bytes"
	"crypto/fips140"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
)

func TestNew(t *testing.T) {
	tests := map[string]struct {
		algorithm Algorithm
		wantType  string
	}{
		"Ed25519":     {algorithm: Ed25519, wantType: ssh.KeyAlgoED25519},
		"ECDSA P-384": {algorithm: ECDSAP384, wantType: ssh.KeyAlgoECDSA384},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair, err := New(rand.Reader, tc.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			signer, err := ssh.ParsePrivateKey(pair.Private)
			if err != nil {
				t.Fatalf("the private half does not parse: %v", err)
			}
			if diff := cmp.Diff(tc.wantType, signer.PublicKey().Type()); diff != "" {
				t.Errorf("type of key (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(string(pair.Public), string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); diff != "" {
				t.Errorf("the halves do not belong together (-public +of private):\n%s", diff)
			}
			if bytes.Count(pair.Public, []byte("\n")) != 1 {
				t.Errorf("the public half is not one line: %q", pair.Public)
			}
		})
	}
}

func TestOpenSSHReadsTheKeys(t *testing.T) {
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("ssh-keygen is not on this machine (Debian: openssh-client)")
	}
	for _, algorithm := range []Algorithm{Ed25519, ECDSAP384} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			pair, err := New(rand.Reader, algorithm)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(file, pair.Private, 0o600); err != nil {
				t.Fatal(err)
			}
			public, err := exec.CommandContext(t.Context(), keygen, "-y", "-f", file).CombinedOutput()
			if err != nil {
				t.Fatalf("ssh-keygen: %v: %s", err, public)
			}
			if diff := cmp.Diff(string(pair.Public), string(public)); diff != "" {
				t.Errorf("ssh-keygen sees another key (-ours +its):\n%s", diff)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	tests := map[string]struct {
		algorithm Algorithm
		wantErr   string
	}{
		"an unknown algorithm": {algorithm: "DSA", wantErr: "generate DSA key: unknown algorithm"},
		"no algorithm":         {algorithm: "", wantErr: "unknown algorithm, want Ed25519 or ECDSA-P384"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pair, err := New(rand.Reader, tc.algorithm)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want it to contain %q", err, tc.wantErr)
			}
			if diff := cmp.Diff(Pair{}, pair); diff != "" {
				t.Errorf("a pair beside the error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewWithoutRandomness(t *testing.T) {
	if _, err := New(iotest.ErrReader(os.ErrClosed), Ed25519); err == nil {
		t.Error("no error from a source of randomness that fails")
	}
}

// inFIPSMode marks the test binary that TestFIPSMode starts: the mode is fixed
// when a process starts.
const inFIPSMode = "TRIREME_TEST_IN_FIPS_MODE"

func TestFIPSMode(t *testing.T) {
	if os.Getenv(inFIPSMode) == "" {
		if fips140.Enabled() {
			t.Skip("the tests themselves run in FIPS mode")
		}
		if got := Default(); got != Ed25519 {
			t.Errorf("Default() = %s outside of FIPS mode, want %s", got, Ed25519)
		}
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFIPSMode$", "-test.v")
		again.Env = append(os.Environ(), "GODEBUG=fips140=on", inFIPSMode+"=yes")
		output, err := again.CombinedOutput()
		if err != nil || !bytes.Contains(output, []byte("keys made in FIPS mode")) {
			t.Errorf("in FIPS mode: %v\n%s", err, output)
		}
		return
	}
	if !fips140.Enabled() {
		t.Fatal("FIPS mode is not on")
	}
	if got := Default(); got != ECDSAP384 {
		t.Errorf("Default() = %s in FIPS mode, want %s", got, ECDSAP384)
	}
	pair, err := New(rand.Reader, ECDSAP384)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ssh.ParsePrivateKey(pair.Private); err != nil {
		t.Error(err)
	}
	t.Log("keys made in FIPS mode")
}

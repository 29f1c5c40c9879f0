// SPDX-License-Identifier: Apache-2.0

// Package sshkey generates the SSH key pairs of a job: the launcher's user key and the
// workers' host key.
package sshkey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/fips140"
	"encoding/pem"
	"fmt"
	"io"

	"golang.org/x/crypto/ssh"
)

// Algorithm is a key algorithm.
type Algorithm string

const (
	Ed25519   Algorithm = "Ed25519"
	ECDSAP384 Algorithm = "ECDSA-P384"
)

// Default is the algorithm of a job that sets none. In FIPS mode it is ECDSA: sshd and
// ssh under RHEL's FIPS policy refuse Ed25519, although Go's own module approves it.
func Default() Algorithm {
	if fips140.Enabled() {
		return ECDSAP384
	}
	return Ed25519
}

// Pair is a key pair in the forms that OpenSSH reads.
type Pair struct {
	// Private is the PEM of an OpenSSH private key, without a passphrase.
	Private []byte
	// Public is one line of authorized_keys, without a comment.
	Public []byte
}

// New generates a key pair. Go ignores random and uses the system's randomness for some
// algorithms (Go 1.26: ECDSA).
func New(random io.Reader, algorithm Algorithm) (Pair, error) {
	private, err := privateKey(random, algorithm)
	if err != nil {
		return Pair{}, fmt.Errorf("generate %s key: %w", algorithm, err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encode public %s key: %w", algorithm, err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return Pair{}, fmt.Errorf("encode private %s key: %w", algorithm, err)
	}
	return Pair{Private: pem.EncodeToMemory(block), Public: ssh.MarshalAuthorizedKey(public)}, nil
}

func privateKey(random io.Reader, algorithm Algorithm) (crypto.Signer, error) {
	switch algorithm {
	case Ed25519:
		_, private, err := ed25519.GenerateKey(random)
		return private, err
	case ECDSAP384:
		return ecdsa.GenerateKey(elliptic.P384(), random)
	default:
		return nil, fmt.Errorf("unknown algorithm, want %s or %s", Ed25519, ECDSAP384)
	}
}

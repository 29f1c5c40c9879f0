// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// cosign's names for the signature of an image, which is itself an image.
const (
	simpleSigningType   = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// signer signs like cosign with a key: ECDSA P-256 over SHA-256.
type signer struct{ key *ecdsa.PrivateKey }

// readSigner reads a private key in PEM format: one of cosign generate-key-pair, which is
// encrypted, or a plain one of OpenSSL.
func readSigner(file, password string) (*signer, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("COSIGN_KEY: %w", err)
	}
	key, err := parseKey(content, password)
	if err != nil {
		return nil, fmt.Errorf("COSIGN_KEY: %s: %w", file, err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, fmt.Errorf("COSIGN_KEY: %s is not an ECDSA key with curve P-256, as cosign generate-key-pair creates it", file)
	}
	return &signer{ec}, nil
}

func parseKey(content []byte, password string) (any, error) {
	// OpenSSL writes the parameters of the curve before the key.
	block, rest := pem.Decode(content)
	for block != nil && block.Type == "EC PARAMETERS" {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("the file has no key in PEM format")
	}
	switch block.Type {
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		plain, err := encrypted.Decrypt(block.Bytes, []byte(password))
		if err != nil {
			return nil, fmt.Errorf("decrypt the key with COSIGN_PASSWORD: %w", err)
		}
		return x509.ParsePKCS8PrivateKey(plain)
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a private key is expected, and not %s", block.Type)
	}
}

// sign returns the signature of content in base64. Without a source of randomness it is
// that of RFC 6979: the same key and content give the same signature.
func (s *signer) sign(content []byte) (string, error) {
	digest := sha256.Sum256(content)
	signature, err := s.key.Sign(nil, digest[:], crypto.SHA256)
	return base64.StdEncoding.EncodeToString(signature), err
}

// publicKey returns the key in PEM format that verifies the signatures.
func (s *signer) publicKey() ([]byte, error) {
	content, err := x509.MarshalPKIXPublicKey(s.key.Public())
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: content}), err
}

// signingPayload says which image is signed, in the format "simple signing".
func signingPayload(repository name.Repository, digest v1.Hash) ([]byte, error) {
	return json.Marshal(map[string]any{
		"critical": map[string]any{
			"identity": map[string]string{"docker-reference": repository.Name()},
			"image":    map[string]string{"docker-manifest-digest": digest.String()},
			"type":     "cosign container image signature",
		},
		"optional": nil,
	})
}

// signatureTag is where cosign looks for the signatures of an image.
func signatureTag(repository name.Repository, digest v1.Hash) name.Tag {
	return repository.Tag(strings.ReplaceAll(digest.String(), ":", "-") + ".sig")
}

// pushSignature signs an image of a registry. Signatures of other keys stay.
func (s *signer) pushSignature(repository name.Repository, digest v1.Hash, options []remote.Option) error {
	payload, err := signingPayload(repository, digest)
	if err != nil {
		return err
	}
	signature, err := s.sign(payload)
	if err != nil {
		return err
	}
	tag := signatureTag(repository, digest)
	signatures, err := remote.Image(tag, options...)
	var answer *transport.Error
	if errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound {
		signatures = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	} else if err != nil {
		return err
	}
	manifest, err := signatures.Manifest()
	if err != nil {
		return err
	}
	for _, layer := range manifest.Layers {
		if layer.Annotations[signatureAnnotation] == signature {
			return nil
		}
	}
	signatures, err = mutate.Append(signatures, mutate.Addendum{
		Layer:       static.NewLayer(payload, simpleSigningType),
		Annotations: map[string]string{signatureAnnotation: signature},
	})
	if err != nil {
		return err
	}
	return remote.Write(tag, signatures, options...)
}

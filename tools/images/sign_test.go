// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// openssl runs the independent verifier, and returns what it prints.
func openssl(t *testing.T, arguments ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	printed, err := exec.CommandContext(t.Context(), "openssl", arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(arguments, " "), err, printed)
	}
	return printed
}

// verifyWithOpenSSL fails unless a signature in base64 is one of content.
func verifyWithOpenSSL(t *testing.T, publicKey, content []byte, signature string) {
	t.Helper()
	folder := t.TempDir()
	files := map[string][]byte{
		"key": publicKey, "content": content, "signature": must(base64.StdEncoding.DecodeString(strings.TrimSpace(signature)))(t),
	}
	for name, content := range files {
		writeFile(t, filepath.Join(folder, name), content)
	}
	openssl(t, "dgst", "-sha256", "-verify", filepath.Join(folder, "key"), "-signature", filepath.Join(folder, "signature"), filepath.Join(folder, "content"))
}

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newKey writes a private key and returns its file.
func newKey(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key.pem")
	writeFile(t, file, openssl(t, "ecparam", "-name", "prime256v1", "-genkey"))
	return file
}

// cosignKey writes a key the way cosign generate-key-pair does, and returns its file.
func cosignKey(t *testing.T, password string) string {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	content := must(encrypted.Encrypt(must(x509.MarshalPKCS8PrivateKey(key))(t), []byte(password)))(t)
	file := filepath.Join(t.TempDir(), "cosign.key")
	writeFile(t, file, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: content}))
	return file
}

func TestSignWithEveryKindOfKey(t *testing.T) {
	pkcs8 := filepath.Join(t.TempDir(), "pkcs8.pem")
	writeFile(t, pkcs8, openssl(t, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-quiet"))
	for phrase, file := range map[string]string{
		"OpenSSL, traditional": newKey(t), "OpenSSL, PKCS #8": pkcs8, "cosign": cosignKey(t, "secret"),
	} {
		t.Run(phrase, func(t *testing.T) {
			key := must(readSigner(file, "secret"))(t)
			signature := must(key.sign([]byte("content")))(t)
			verifyWithOpenSSL(t, must(key.publicKey())(t), []byte("content"), signature)
			if again := must(key.sign([]byte("content")))(t); again != signature {
				t.Errorf("a second signature is %s, want %s", again, signature)
			}
		})
	}
}

func TestWrongKeys(t *testing.T) {
	folder := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		writeFile(t, path, content)
		return path
	}
	for phrase, test := range map[string]struct{ file, want string }{
		"missing":        {filepath.Join(folder, "missing.pem"), "no such file"},
		"not PEM":        {file("text", []byte("hello")), "no key in PEM format"},
		"wrong password": {cosignKey(t, "another"), "decrypt the key with COSIGN_PASSWORD"},
		"another curve":  {file("p384.pem", openssl(t, "ecparam", "-name", "secp384r1", "-genkey")), "not an ECDSA key with curve P-256"},
		"public key":     {file("public.pem", must(must(readSigner(newKey(t), ""))(t).publicKey())(t)), "a private key is expected, and not PUBLIC KEY"},
	} {
		t.Run(phrase, func(t *testing.T) {
			_, err := readSigner(test.file, "secret")
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "COSIGN_KEY: ") {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestPushSigned looks at a registry the way cosign verify does.
func TestPushSigned(t *testing.T) {
	server := startRegistry(t)
	p, host := pushTo(t, server)
	logIn(t, host, password)
	keys := []string{newKey(t), newKey(t)}
	// The first key twice: its signature is added once.
	for _, p.key = range []string{keys[0], keys[0], keys[1]} {
		if err := push(t.Context(), p, io.Discard); err != nil {
			t.Fatal(err)
		}
	}

	index, _, _ := readLayout(t, filepath.Join(p.layouts, "mpi-agent"))
	digest := must(index.Digest())(t)
	tag := must(name.NewTag(host + "/some/path/mpi-agent:sha256-" + digest.Hex + ".sig"))(t)
	signatures := must(remote.Image(tag, remote.WithTransport(server.Client().Transport), remote.WithAuthFromKeychain(authn.DefaultKeychain)))(t)
	layers := must(signatures.Manifest())(t).Layers
	if len(layers) != len(keys) {
		t.Fatalf("%d signatures, want one for each key", len(layers))
	}
	for i, descriptor := range layers {
		if descriptor.MediaType != "application/vnd.dev.cosign.simplesigning.v1+json" {
			t.Errorf("media type is %s", descriptor.MediaType)
		}
		content := must(must(signatures.LayerByDigest(descriptor.Digest))(t).Compressed())(t)
		payload := must(io.ReadAll(content))(t)
		var signed struct {
			Critical struct {
				Image struct {
					Digest string `json:"docker-manifest-digest"`
				}
			}
		}
		if err := json.Unmarshal(payload, &signed); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(digest.String(), signed.Critical.Image.Digest); diff != "" {
			t.Errorf("signed digest (-want +got):\n%s", diff)
		}
		key := must(readSigner(keys[i], ""))(t)
		verifyWithOpenSSL(t, must(key.publicKey())(t), payload, descriptor.Annotations["dev.cosignproject.cosign/signature"])
	}
}

func TestSeal(t *testing.T) {
	r := releaseSettings{settings: settings{output: t.TempDir()}}
	writeFile(t, filepath.Join(r.output, "b.txt"), []byte("b"))
	writeFile(t, filepath.Join(r.output, "a.txt"), []byte("a"))
	if err := os.Mkdir(filepath.Join(r.output, "images"), 0o700); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := seal(r, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "has 2 files. The release is not signed") {
		t.Errorf("the output does not say that the release is not signed: %s", out.String())
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksumsFile)
	check.Dir = r.output
	if printed, err := check.CombinedOutput(); err != nil || string(printed) != "a.txt: OK\nb.txt: OK\n" {
		t.Errorf("sha256sum: %v\n%s", err, printed)
	}

	unsigned := must(os.ReadFile(filepath.Join(r.output, checksumsFile)))(t)
	r.key = newKey(t)
	if err := seal(r, io.Discard); err != nil {
		t.Fatal(err)
	}
	sums := must(os.ReadFile(filepath.Join(r.output, checksumsFile)))(t)
	if diff := cmp.Diff(string(unsigned), string(sums)); diff != "" {
		t.Errorf("the signature changes the checksums (-unsigned +signed):\n%s", diff)
	}
	signature := must(os.ReadFile(filepath.Join(r.output, signatureFile)))(t)
	verifyWithOpenSSL(t, must(os.ReadFile(filepath.Join(r.output, publicKeyFile)))(t), sums, string(signature))
}

// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

// digestPrefix names the algorithm of a digest.
const digestPrefix = "sha256:"

// RuntimeDigest identifies a runtime by its content.
func RuntimeDigest(spec *v2alpha1.TrainingRuntimeSpec) (digest string, content []byte, err error) {
	if content, err = json.Marshal(spec); err != nil {
		return "", nil, fmt.Errorf("encode the runtime: %w", err)
	}
	digest, err = contentDigest(content)
	return digest, content, err
}

// RuntimeFrom decodes a stored runtime. Content that does not match the digest is an
// error.
func RuntimeFrom(content []byte, digest string) (*v2alpha1.TrainingRuntimeSpec, error) {
	actual, err := contentDigest(content)
	if err != nil {
		return nil, err
	}
	if actual != digest {
		return nil, fmt.Errorf("its content has the digest %s, not %s", actual, digest)
	}
	spec := &v2alpha1.TrainingRuntimeSpec{}
	if err := json.Unmarshal(content, spec); err != nil {
		return nil, fmt.Errorf("decode the runtime: %w", err)
	}
	return spec, nil
}

// contentDigest does not depend on the order of fields or on white space, because a
// restored backup may differ in both.
func contentDigest(content []byte) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var parsed any
	if err := decoder.Decode(&parsed); err != nil {
		return "", fmt.Errorf("decode the runtime: %w", err)
	}
	canonical, err := json.Marshal(parsed)
	if err != nil {
		return "", fmt.Errorf("encode the runtime: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return digestPrefix + hex.EncodeToString(sum[:]), nil
}

// IsDigest reports whether a text has the form of a digest. Annotations may hold any
// text.
func IsDigest(text string) bool {
	digits, found := strings.CutPrefix(text, digestPrefix)
	sum, err := hex.DecodeString(digits)
	return found && err == nil && len(sum) == sha256.Size && strings.ToLower(digits) == digits
}

// ShortDigest is the part of a digest that is short enough for names and labels.
func ShortDigest(digest string) string {
	digits := strings.TrimPrefix(digest, digestPrefix)
	return digits[:min(len(digits), shortDigestLength)]
}

// shortDigestLength is half of a digest: 128 bits.
const shortDigestLength = 32

// SPDX-License-Identifier: Apache-2.0

package history

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// maxUnsealed is more than the largest record or log, so that a forged blob cannot fill the
// memory.
const maxUnsealed = 256 << 20

// errCorrupt: a blob is not what was written.
var errCorrupt = errors.New("the checksum does not match")

// seal compresses a content and puts its checksum in front.
func seal(content []byte) ([]byte, error) {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(packed.Bytes())
	return append([]byte(hex.EncodeToString(sum[:])+"\n"), packed.Bytes()...), nil
}

// unseal returns the content of a blob, or errCorrupt.
func unseal(blob []byte) ([]byte, error) {
	checksum, packed, found := bytes.Cut(blob, []byte("\n"))
	sum := sha256.Sum256(packed)
	if !found || string(checksum) != hex.EncodeToString(sum[:]) {
		return nil, errCorrupt
	}
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	content, err := io.ReadAll(io.LimitReader(reader, maxUnsealed))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return content, nil
}

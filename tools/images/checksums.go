// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files about the other files of a release.
const (
	checksumsFile = "checksums.txt"
	signatureFile = "checksums.txt.sig"
	publicKeyFile = "cosign.pub"
)

// checksums returns the SHA-256 digests of the files in a folder, in the format of
// sha256sum. Folders are not included: their content is in archives.
func checksums(folder string) ([]byte, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var lines strings.Builder
	for _, one := range entries { // They are sorted.
		if !one.Type().IsRegular() || slices.Contains([]string{checksumsFile, signatureFile, publicKeyFile}, one.Name()) {
			continue
		}
		digest, err := fileDigest(filepath.Join(folder, one.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&lines, "%s  %s\n", digest, one.Name())
	}
	return []byte(lines.String()), nil
}

// fileDigest returns the SHA-256 digest of a file in hexadecimal digits.
func fileDigest(name string) (digest string, err error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	return hex.EncodeToString(hash.Sum(nil)), err
}

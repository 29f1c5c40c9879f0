// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"crypto/fips140"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"

	"github.com/minio/crc64nvme"
)

type algorithm uint8

const (
	noChecksum algorithm = iota
	// gitBlob is git's hash of a file: SHA-1 of a header and the content.
	gitBlob
	md5Sum
	sha1Sum
	sha256Sum
	crc32IEEE
	crc32C
	crc64NVME
)

func (a algorithm) String() string {
	return [...]string{"no checksum", "git object", "MD5", "SHA-1", "SHA-256", "CRC-32", "CRC-32C", "CRC-64/NVME"}[a]
}

// checksum is the expected checksum of a file.
type checksum struct {
	// sum in lower-case hex.
	sum       string
	algorithm algorithm
}

// newHash starts a hash; nil if there is nothing to compare with.
func (c checksum) newHash(size int64) hash.Hash {
	switch c.algorithm {
	case gitBlob:
		sum := notForSecurity{sha1.New()}
		fmt.Fprintf(sum, "blob %d\x00", size)
		return sum
	case md5Sum:
		return notForSecurity{md5.New()}
	case sha1Sum:
		return notForSecurity{sha1.New()}
	case sha256Sum:
		return sha256.New()
	case crc32IEEE:
		return crc32.NewIEEE()
	case crc32C:
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	case crc64NVME:
		return crc64nvme.New()
	}
	return nil
}

// matches tells whether a hash is the expected one.
func (c checksum) matches(sum hash.Hash) bool {
	return sum == nil || hex.EncodeToString(sum.Sum(nil)) == c.sum
}

// notForSecurity is a hash that finds damaged downloads, by the sums that the storage has
// published. In a process with fips140=only, MD5 and SHA-1 would panic otherwise.
type notForSecurity struct{ hash.Hash }

func (h notForSecurity) Write(data []byte) (n int, err error) {
	fips140.WithoutEnforcement(func() { n, err = h.Hash.Write(data) })
	return n, err
}

func (h notForSecurity) Sum(before []byte) (sum []byte) {
	fips140.WithoutEnforcement(func() { sum = h.Hash.Sum(before) })
	return sum
}

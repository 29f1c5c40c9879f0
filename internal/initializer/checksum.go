package initializer

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"

	"github.com/minio/crc64nvme"
)

type algorithm string

const (
	noChecksum algorithm = ""
	// gitBlob is how git names a file: SHA-1 of a header and the content.
	gitBlob   algorithm = "git"
	md5Sum    algorithm = "MD5"
	sha1Sum   algorithm = "SHA-1"
	sha256Sum algorithm = "SHA-256"
	crc32IEEE algorithm = "CRC-32"
	crc32C    algorithm = "CRC-32C"
	crc64NVME algorithm = "CRC-64/NVME"
)

// checksum is what the content of a file must add up to.
type checksum struct {
	algorithm algorithm
	// sum in lower-case hex.
	sum string
}

// newHash begins a sum; nil if there is nothing to compare with.
func (checksum checksum) newHash(size int64) hash.Hash {
	switch checksum.algorithm {
	case gitBlob:
		sum := sha1.New()
		fmt.Fprintf(sum, "blob %d\x00", size)
		return sum
	case md5Sum:
		return md5.New()
	case sha1Sum:
		return sha1.New()
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

// fits says whether a sum is the expected one.
func (checksum checksum) fits(sum hash.Hash) bool {
	return sum == nil || hex.EncodeToString(sum.Sum(nil)) == checksum.sum
}

// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// endpointVariables have the URL of the server, in this order. The third is the name in
// data connections of OpenShift AI.
var endpointVariables = []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_S3_ENDPOINT", "S3_ENDPOINT"}

const (
	addressingVariable = "AWS_S3_ADDRESSING_STYLE"
	s3BundleVariable   = "AWS_CA_BUNDLE"
	amazon             = "s3.amazonaws.com"
)

var regionVariables = []string{"AWS_REGION", "AWS_DEFAULT_REGION"}

// bucket has the objects below a prefix, or one object.
type bucket struct {
	location
	client *minio.Core
	// endpoint, and the variable that it comes from, for messages.
	endpoint, endpointVariable string
	anonymous                  bool
	redact                     redactor
	// prefix of the keys that is not part of the paths.
	prefix string
	// objects up to the last listed key, so that a retry continues there.
	objects []entry
	last    string
}

func newBucket(at location, environment Environment, stall time.Duration) (*bucket, error) {
	b := &bucket{location: at, endpoint: amazon, redact: newRedactor(environment)}
	secure, err := b.chooseEndpoint(environment)
	if err != nil {
		return nil, err
	}
	keys, err := b.chooseCredentials(environment)
	if err != nil {
		return nil, err
	}
	style, err := addressingStyle(environment)
	if err != nil {
		return nil, err
	}
	transport, err := newTransport(environment, s3BundleVariable, stall)
	if err != nil {
		return nil, err
	}
	region, _ := environment.value(regionVariables...)
	b.client, err = minio.NewCore(b.endpoint, &minio.Options{
		Creds:        keys,
		Secure:       secure,
		Transport:    transport,
		Region:       region,
		BucketLookup: style,
		// We retry ourselves; the second attempt of the library is for the region that a
		// server returns in its error.
		MaxRetries: 2,
	})
	if err != nil {
		return nil, misconfigured("%s in the Secret must be the URL of an S3 server, such as https://host:9000", b.endpointVariable)
	}
	b.client.SetAppInfo("trireme-initializer", "1")
	return b, nil
}

func (b *bucket) chooseEndpoint(environment Environment) (secure bool, err error) {
	value, name := environment.value(endpointVariables...)
	b.endpointVariable = name
	if value == "" {
		return true, nil
	}
	if !strings.Contains(value, "://") {
		value = "https://" + value
	}
	address, err := url.Parse(value)
	if err != nil || address.Host == "" || address.User != nil || strings.Trim(address.Path, "/") != "" || address.Scheme != "http" && address.Scheme != "https" {
		// The value is not shown: it may have a password.
		return false, misconfigured("%s in the Secret must be the URL of an S3 server, such as https://host:9000, without a user or a path", name)
	}
	b.endpoint = address.Host
	return address.Scheme == "https", nil
}

func (b *bucket) chooseCredentials(environment Environment) (*credentials.Credentials, error) {
	key, _ := environment.value(accessKeyVariable)
	secret, _ := environment.value(secretKeyVariable)
	token, _ := environment.value(sessionTokenVariable)
	switch {
	case key == "" && secret == "":
		b.anonymous = true
	case key == "":
		return nil, misconfigured("the Secret has %s but no %s", secretKeyVariable, accessKeyVariable)
	case secret == "":
		return nil, misconfigured("the Secret has %s but no %s", accessKeyVariable, secretKeyVariable)
	}
	// Without keys requests are not signed, as public buckets require.
	return credentials.NewStaticV4(key, secret, token), nil
}

// addressingStyle tells whether the bucket is part of the host name or of the path. By
// default it is in the host name for Amazon, in the path for others.
func addressingStyle(environment Environment) (minio.BucketLookupType, error) {
	switch value, _ := environment.value(addressingVariable); value {
	case "", "auto":
		return minio.BucketLookupAuto, nil
	case "path":
		return minio.BucketLookupPath, nil
	case "virtual":
		return minio.BucketLookupDNS, nil
	}
	return 0, misconfigured("%s in the Secret must be path, virtual or auto", addressingVariable)
}

func (b *bucket) revision() string { return "" }

func (b *bucket) listed() int64 { return int64(len(b.objects)) }

// list finds all objects below path/, or else the object with the key path. The path data
// does not match data2/x.
func (b *bucket) list(ctx context.Context) ([]entry, error) {
	b.prefix = ""
	if b.path != "" {
		b.prefix = b.path + "/"
	}
	denied := b.listBelow(ctx)
	if denied != nil && !isDenied(denied) || len(b.objects) > 0 {
		return b.objects, denied
	}
	if b.path == "" {
		if denied != nil {
			return nil, denied
		}
		return nil, b.nothingFound()
	}
	return b.single(ctx, denied)
}

func (b *bucket) listBelow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	noOwner := false
	options := minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true, FetchOwner: &noOwner, StartAfter: b.last}
	for object := range b.client.ListObjectsIter(ctx, b.container, options) {
		if object.Err != nil {
			return b.explain(ctx, object.Err, "")
		}
		b.last = object.Key
		if strings.HasSuffix(object.Key, "/") && object.Size == 0 {
			continue // What consoles store for a folder.
		}
		name, err := pathOfKey(b.prefix, object.Key)
		if err != nil {
			return &Failure{What: err.Error(), Advice: "rename or remove the object, or fetch a prefix without it"}
		}
		if !isOwn(name) {
			b.objects = append(b.objects, objectEntry(name, object))
		}
	}
	return ctx.Err()
}

func objectEntry(name string, object minio.ObjectInfo) entry {
	result := entry{path: name, size: object.Size, version: strings.Trim(object.ETag, `"`)}
	if plainMD5.MatchString(result.version) {
		result.checksum = checksum{algorithm: md5Sum, sum: result.version}
	}
	return result
}

// single returns the object whose key is the path. It works with an access key that may
// not list the bucket.
func (b *bucket) single(ctx context.Context, denied error) ([]entry, error) {
	object, err := b.client.StatObject(ctx, b.container, b.path, minio.StatObjectOptions{})
	if err != nil {
		explained := b.explain(ctx, err, b.path)
		switch {
		case isNotFound(err):
			return nil, b.nothingFound()
		case denied != nil && isDenied(explained):
			return nil, denied
		}
		return nil, explained
	}
	name := path.Base(b.path)
	b.prefix = strings.TrimSuffix(b.path, name)
	if err := checkPath(name); err != nil {
		return nil, &Failure{What: fmt.Sprintf("the object %q cannot be a file: %v", b.path, err), Advice: "rename the object"}
	}
	return []entry{objectEntry(name, object)}, nil
}

func (b *bucket) nothingFound() error {
	return &Failure{
		What:   fmt.Sprintf("no object %q in bucket %q at %s, and no objects below it", b.path, b.container, b.endpoint),
		Advice: "check the path in storageUri",
	}
}

func (b *bucket) open(ctx context.Context, entry entry, offset int64) (*content, error) {
	key := b.prefix + entry.path
	options := minio.GetObjectOptions{Checksum: true}
	if entry.version != "" {
		// If an object is replaced during the download, the file must not have parts of
		// both.
		if err := options.SetMatchETag(entry.version); err != nil {
			return nil, err
		}
	}
	sum := checksum{}
	if offset > 0 {
		// Partial responses do not have the checksum of the whole object.
		object, err := b.client.StatObject(ctx, b.container, key, options)
		if err != nil {
			return nil, b.explain(ctx, err, key)
		}
		sum = checksumOf(object, object.Headers)
		if err := options.SetRange(offset, 0); err != nil {
			return nil, err
		}
	}
	body, object, header, err := b.client.GetObject(ctx, b.container, key, options)
	if err != nil {
		return nil, b.explain(ctx, err, key)
	}
	if offset == 0 {
		sum = checksumOf(object, header)
	}
	return &content{ReadCloser: body, offset: startOffset(header, offset), checksum: sum}, nil
}

func (b *bucket) interrupted(ctx context.Context, _ entry, err error) error {
	return b.explain(ctx, err, "")
}

// startOffset returns the offset at which a response starts.
func startOffset(header http.Header, requested int64) int64 {
	if requested == 0 {
		return 0
	}
	position, found := strings.CutPrefix(header.Get("Content-Range"), "bytes ")
	if !found {
		return 0
	}
	first, _, _ := strings.Cut(position, "-")
	if begin, err := strconv.ParseInt(first, 10, 64); err != nil || begin != requested {
		return 0
	}
	return requested
}

var plainMD5 = regexp.MustCompile(`^[0-9a-f]{32}$`)

// checksumOf returns the checksum of a whole object, if the server has one. Composite
// checksums of multipart uploads need the sizes of the parts.
func checksumOf(object minio.ObjectInfo, header http.Header) checksum {
	if object.ChecksumMode != "COMPOSITE" {
		for _, known := range []struct {
			algorithm algorithm
			sum       string
		}{
			{sha256Sum, object.ChecksumSHA256}, {crc64NVME, object.ChecksumCRC64NVME}, {crc32C, object.ChecksumCRC32C},
			{crc32IEEE, object.ChecksumCRC32}, {sha1Sum, object.ChecksumSHA1},
		} {
			if sum, err := base64.StdEncoding.DecodeString(known.sum); err == nil && len(sum) > 0 {
				return checksum{algorithm: known.algorithm, sum: hex.EncodeToString(sum)}
			}
		}
	}
	// The ETag is the MD5 of the content, unless the server encrypts with KMS or a
	// customer key.
	encrypted := strings.HasPrefix(header.Get("X-Amz-Server-Side-Encryption"), "aws:kms") || header.Get("X-Amz-Server-Side-Encryption-Customer-Algorithm") != ""
	if etag := strings.Trim(object.ETag, `"`); plainMD5.MatchString(etag) && !encrypted {
		return checksum{algorithm: md5Sum, sum: etag}
	}
	return checksum{}
}

func isNotFound(err error) bool {
	var response minio.ErrorResponse
	return errors.As(err, &response) && response.StatusCode == http.StatusNotFound && response.Code != "NoSuchBucket"
}

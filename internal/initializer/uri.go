// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// Kind of the data to download.
type Kind string

const (
	Dataset Kind = "dataset"
	Model   Kind = "model"
)

// Schemes of URIs.
const (
	schemeS3  = "s3"
	schemeHub = "hf"
	schemePVC = "pvc"
)

// location is a parsed URI.
type location struct {
	scheme string
	// container is a bucket, a repository (owner/name) or a PVC.
	container string
	// path is a key or a prefix of keys, or a path on a PVC; empty means all of it.
	path string
	// repositoryKind is the kind of the hub repository.
	repositoryKind Kind
	// revision of a repository: a branch, a tag or a commit.
	revision string
}

// String returns the URI with all defaults filled in. It identifies the content of a
// directory, so equal sources have equal URIs.
func (l location) String() string {
	text := l.scheme + "://" + l.container
	switch {
	case l.scheme == schemeHub:
		return fmt.Sprintf("%s://%ss/%s@%s", l.scheme, l.repositoryKind, l.container, l.revision)
	case l.path != "":
		text += "/" + l.path
	}
	return text
}

const uriForms = "s3://bucket/path, hf://owner/name[@revision] or pvc://claim/path"

// parseURI parses a URI. Keys and paths are literal: they have no escapes.
func parseURI(uri string, kind Kind) (location, error) {
	scheme, rest, found := strings.Cut(uri, "://")
	if first, _, _ := strings.Cut(rest, "/"); strings.Contains(first, "@") || !found && strings.Contains(uri, "@") {
		// The URI is not shown: the text before an @ may be a password.
		return location{}, fmt.Errorf("the URI must not contain credentials; put them into a Secret and name it in secretRef")
	}
	if strings.ContainsFunc(uri, func(char rune) bool { return char < ' ' || char == 0x7f }) {
		return location{}, fmt.Errorf("the URI %q has control characters", uri)
	}
	switch scheme {
	case schemeS3:
		return parseS3(rest)
	case schemeHub:
		return parseHub(rest, kind)
	case schemePVC:
		return parsePVC(rest)
	}
	return location{}, fmt.Errorf("the URI %q must be %s", uri, uriForms)
}

func parseS3(rest string) (location, error) {
	bucket, key, _ := strings.Cut(rest, "/")
	if err := s3utils.CheckValidBucketName(bucket); err != nil {
		return location{}, fmt.Errorf("%q is not a valid bucket name; the URI must be s3://bucket/path", bucket)
	}
	return location{scheme: schemeS3, container: bucket, path: strings.TrimSuffix(key, "/")}, nil
}

var (
	hubName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	hubRevision = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/+-]{0,250}$`)
)

// parseHub parses [datasets/|models/][owner/]name[@revision]. Without a prefix the kind of
// the repository is the kind of the data.
func parseHub(rest string, kind Kind) (location, error) {
	repository, revision, hasRevision := strings.Cut(strings.TrimSuffix(rest, "/"), "@")
	if !hasRevision {
		revision = "main"
	}
	prefix, name, _ := strings.Cut(repository, "/")
	switch prefix {
	case "datasets":
		kind, repository = Dataset, name
	case "models":
		kind, repository = Model, name
	}
	parts := strings.Split(repository, "/")
	if len(parts) > 2 {
		return location{}, fmt.Errorf("hf://%s must be hf://owner/name[@revision], hf://datasets/owner/name[@revision] or hf://models/owner/name[@revision]; fetching only a part of a repository is not supported", rest)
	}
	for _, part := range parts {
		if !hubName.MatchString(part) {
			return location{}, fmt.Errorf("%q is not valid in the name of a repository; the URI must be hf://owner/name[@revision]", part)
		}
	}
	if !hubRevision.MatchString(revision) || strings.Contains(revision, "..") {
		return location{}, fmt.Errorf("%q is not a valid revision: it must be a branch, a tag or a commit", revision)
	}
	return location{scheme: schemeHub, container: repository, repositoryKind: kind, revision: revision}, nil
}

func parsePVC(rest string) (location, error) {
	claim, directory, _ := strings.Cut(rest, "/")
	if claim == "" || claim == "." || claim == ".." {
		return location{}, fmt.Errorf("pvc://%s has no PVC name; the URI must be pvc://claim/path", rest)
	}
	for _, part := range strings.Split(directory, "/") {
		if part == ".." {
			return location{}, fmt.Errorf("pvc://%s points outside the PVC: the path must not have .. segments", rest)
		}
	}
	directory = strings.TrimPrefix(path.Clean("/"+directory), "/")
	if directory != "" && !fs.ValidPath(directory) {
		return location{}, fmt.Errorf("pvc://%q is not a valid path on a PVC", rest)
	}
	return location{scheme: schemePVC, container: claim, path: directory}, nil
}

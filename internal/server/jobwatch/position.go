// SPDX-License-Identifier: Apache-2.0

package jobwatch

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// position is how much of a kind's history a client has received. Usually it is a resource
// version, and has the same form.
//
// When the API server has lost its history, the jobs are listed again, and the differences
// are sent: several changes without a version of their own. A client that has received
// only some of them is at "from-version-count". The changes depend only on the two
// versions, so another replica that listed at the same versions can resume; all others
// return "too old".
type position struct {
	// version up to which all changes were received, or will be after the merged changes.
	version uint64
	// from is the version before the merged changes, count how many of them were received.
	// Both are 0 otherwise.
	from  uint64
	count int
}

func at(version uint64) position { return position{version: version} }

func (p position) String() string {
	if p.count == 0 {
		return strconv.FormatUint(p.version, 10)
	}
	return fmt.Sprintf("%d-%d-%d", p.from, p.version, p.count)
}

// parsePosition parses a position. Other texts are errors of the client.
func parsePosition(text string) (position, error) {
	var read position
	var err error
	switch parts := strings.Split(text, "-"); len(parts) {
	case 1:
		read.version, err = parseVersion(parts[0])
	case 3:
		if read.from, err = parseVersion(parts[0]); err == nil {
			read.version, err = parseVersion(parts[1])
		}
		if err == nil {
			read.count, err = strconv.Atoi(parts[2])
		}
	default:
		err = strconv.ErrSyntax
	}
	// Each position has only one form: no signs, no leading zeros.
	if err != nil || read.String() != text || read.count < 0 || read.count > 0 && read.from >= read.version {
		return position{}, invalidVersion("is not a version that a watch sent")
	}
	return read, nil
}

// Validate returns an error if the version is malformed, so that the watch is refused
// before it starts. Whether the version is too old or too new is checked later.
func (w *Watch) Validate() error {
	if w.Since == "" {
		return nil
	}
	_, err := parsePosition(w.Since)
	return err
}

// parseVersion parses a resource version of the API server. Kubernetes guarantees that
// versions of one resource are increasing numbers.
func parseVersion(text string) (uint64, error) {
	version, err := strconv.ParseUint(text, 10, 64)
	if err == nil && version == 0 {
		err = strconv.ErrRange
	}
	return version, err
}

func invalidVersion(why string) *apierror.Error {
	invalid := apierror.Invalid("resourceVersion", "%s", why)
	invalid.Suggestions = []string{startOver}
	return invalid
}

const startOver = "Reconnect without resourceVersion to receive all jobs again"

func expired(why string) *apierror.Error {
	return apierror.New(http.StatusGone, "Expired", why, startOver)
}

// Errors that make a client start over.
func tooOld() *apierror.Error {
	return expired("The resourceVersion is too old: the changes since then are no longer available")
}

func tooSlow() *apierror.Error {
	return expired("The connection is too slow: the next changes are no longer available")
}

package jobwatch

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// position is how much of a kind's history a reader has seen. Mostly that is a
// resource version, and it is written as such.
//
// When the cluster's own history was lost for a while, the jobs are listed again, and
// what is different by then is told: several changes, none of which has a version of
// its own that could be trusted. A reader that has seen some of them and not the
// others is at "from-version-told". What those changes are depends on the two
// versions alone, so another replica that listed at the same two knows them, too, and
// any other says honestly that it does not.
type position struct {
	// version up to which everything has been seen, or will have been at the end of
	// the changes that are told together.
	version uint64
	// from is the version before those changes, told how many of them were seen.
	// Neither is set otherwise.
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

// parsePosition reads what String wrote. Everything else is a mistake of the client's.
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
	// There is one way to write each position: no signs, no zeros before it.
	if err != nil || read.String() != text || read.count < 0 || read.count > 0 && read.from >= read.version {
		return position{}, invalidVersion("is not a version that a watch sent")
	}
	return read, nil
}

// Validate is an error if no source could begin such a watch, so that it can be
// refused before it begins. Whether the version is too old or too new is found out
// then.
func (w *Watch) Validate() error {
	if w.Since == "" {
		return nil
	}
	_, err := parsePosition(w.Since)
	return err
}

// parseVersion reads a resource version of the API server's. Kubernetes promises
// that those of one resource are numbers that grow.
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

// The reasons to start over.
func tooOld() *apierror.Error {
	return expired("The resourceVersion is too old: the changes since then are no longer available")
}

func tooSlow() *apierror.Error {
	return expired("The connection is too slow: the next changes are no longer available")
}

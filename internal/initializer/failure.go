// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// Failure is an error for the author of the job: what happened, and what to do.
type Failure struct {
	What   string
	Advice string
	// temporary failures are retried.
	temporary bool
	// after is the wait that the server requests.
	after time.Duration
	// corrupt means that the received content is wrong, and is discarded.
	corrupt bool
	cause   error
}

func (f *Failure) Error() string {
	if f.Advice == "" {
		return f.What
	}
	return f.What + "; " + f.Advice
}

func (f *Failure) Unwrap() error { return f.cause }

func asFailure(err error) (*Failure, bool) {
	var failure *Failure
	return failure, errors.As(err, &failure)
}

// UsageError is an error in the arguments.
type UsageError struct{ message string }

func (u *UsageError) Error() string { return u.message }

func usage(format string, arguments ...any) error {
	return &UsageError{message: fmt.Sprintf(format, arguments...)}
}

// misconfigured is an error in the Secret.
func misconfigured(format string, arguments ...any) error {
	return &Failure{What: fmt.Sprintf(format, arguments...)}
}

// explainDiskError explains an error of the directory or of a PVC.
func explainDiskError(err error, action string) error {
	if _, ok := asFailure(err); ok || err == nil {
		return err
	}
	failure := &Failure{cause: err}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		failure.What = fmt.Sprintf("no space left to %s", action)
		failure.Advice = "use a larger PVC: set storage.size, or another claimName"
	case errors.Is(err, syscall.EROFS):
		failure.What = fmt.Sprintf("cannot %s: the volume is read-only", action)
		failure.Advice = "use a writable PVC"
	case errors.Is(err, os.ErrPermission):
		failure.What = fmt.Sprintf("cannot %s: permission denied for user %d", action, os.Getuid())
		failure.Advice = "change the owner or group of the files on the PVC to this user, or use a new PVC"
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EEXIST), errors.Is(err, syscall.ENOTEMPTY):
		failure.What = fmt.Sprintf("cannot %s: another file or directory with this name exists", action)
		failure.Advice = "remove it from the PVC, or use a new PVC"
	case strings.Contains(err.Error(), "path escapes from parent"):
		failure.What = fmt.Sprintf("cannot %s: a symbolic link in the path points outside the directory", action)
		failure.Advice = "remove the link from the PVC"
	default:
		failure.What = fmt.Sprintf("cannot %s: %v", action, lastCause(err))
		failure.Advice = "check the PVC and its volume"
	}
	return failure
}

// lastCause returns the innermost error, without paths.
func lastCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// maxMessage is the maximum length of a termination message in bytes.
const maxMessage = 2000

// oneLine converts a text to one line of limited length.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(char rune) bool { return char < ' ' || char == 0x7f }), " ")
	return shorten(text, maxMessage)
}

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

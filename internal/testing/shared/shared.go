// SPDX-License-Identifier: Apache-2.0

// Package shared lets the tests of a package share what is costly to start, such
// as an API server.
package shared

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Thing is made for the first test that needs it, and lives as long as all tests.
type Thing[T any] struct {
	// Make makes it, with a test that ends when all of them have.
	Make func(testing.TB) T

	once     sync.Once
	made     bool
	thing    T
	lifetime lifetime
}

// For is the thing, for a test.
func (shared *Thing[T]) For(t testing.TB) T {
	t.Helper()
	shared.once.Do(func() {
		shared.lifetime.TB = t
		shared.thing = shared.Make(&shared.lifetime)
		shared.made = true
	})
	if !shared.made {
		t.Fatal("what the tests share did not start: see the first test that failed")
	}
	return shared.thing
}

// End ends it, and returns the exit code of the package: that of its tests, or 1
// if something went wrong that only now can be seen.
func (shared *Thing[T]) End(code int) int {
	shared.lifetime.end()
	if shared.lifetime.failed {
		return 1
	}
	return code
}

// lifetime is the test that things belong to which outlive the one that happened
// to need them first.
type lifetime struct {
	testing.TB
	cleanups []func()
	over     bool
	failed   bool
}

func (lifetime *lifetime) Cleanup(cleanup func()) {
	lifetime.cleanups = append(lifetime.cleanups, cleanup)
}

func (lifetime *lifetime) TempDir() string {
	directory, err := os.MkdirTemp("", "trireme-test-")
	if err != nil {
		lifetime.Fatal(err)
	}
	lifetime.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

// Errorf: when all tests have ended, none of them can fail any more.
func (lifetime *lifetime) Errorf(format string, arguments ...any) {
	if !lifetime.over {
		lifetime.TB.Errorf(format, arguments...)
		return
	}
	lifetime.failed = true
	fmt.Printf(format+"\n", arguments...)
}

func (lifetime *lifetime) end() {
	lifetime.over = true
	for i := len(lifetime.cleanups) - 1; i >= 0; i-- {
		lifetime.cleanups[i]()
	}
}

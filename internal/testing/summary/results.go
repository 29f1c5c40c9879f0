// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// name of a test.
type name struct{ pack, test string }

func (name name) String() string { return name.pack + " " + name.test }

// result is what became of a test in its last attempt.
type result struct {
	action  string
	seconds float64
	// firstLog is what the first attempt wrote that failed.
	firstLog string
	failed   bool
	log      strings.Builder
}

// results are those of all attempts; a test that failed may have had two.
type results struct {
	tests map[name]*result
	// failing are the packages of which a test has failed in the attempt that is being read.
	failing map[string]bool
	// broken are packages that failed in an attempt without a test that did: they were not
	// built, or TestMain failed. There is no test to repeat, so a second attempt runs none
	// and passes.
	broken []string
}

func newResults() *results { return &results{tests: map[name]*result{}, failing: map[string]bool{}} }

// event is a line of `go test -json`.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

func (results *results) add(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		// What is no event was written past the tests, by the go command or by a program.
		var happened event
		if err := json.Unmarshal(line, &happened); err != nil {
			continue
		}
		if happened.Test != "" {
			results.note(happened)
		} else {
			results.noteEnd(happened)
		}
	}
}

// noteEnd notes the end of a package.
func (results *results) noteEnd(happened event) {
	switch happened.Action {
	case "fail":
		if !results.failing[happened.Package] {
			results.broken = append(results.broken, happened.Package)
		}
		fallthrough
	case "pass":
		delete(results.failing, happened.Package)
	}
}

func (results *results) note(happened event) {
	key := name{happened.Package, happened.Test}
	test := results.tests[key]
	if test == nil {
		test = &result{}
		results.tests[key] = test
	}
	switch happened.Action {
	case "run":
		test.log.Reset()
	case "output":
		test.log.WriteString(happened.Output)
	case "pass", "fail", "skip":
		test.action, test.seconds = happened.Action, happened.Elapsed
		if happened.Action == "fail" {
			results.failing[happened.Package] = true
		}
		if happened.Action == "fail" && !test.failed {
			test.failed, test.firstLog = true, test.log.String()
		}
	}
}

func (results *results) counts() string {
	count := map[string]int{}
	for _, test := range results.tests {
		count[test.action]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", count["pass"], count["fail"], count["skip"])
}

// repeated are the tests that failed and then passed, without those that failed only
// because a part of them did.
func (results *results) repeated() []name {
	all := results.sorted(func(test *result) bool { return test.failed && test.action == "pass" }, func(one, other *result) int { return 0 })
	return slices.DeleteFunc(slices.Clone(all), func(whole name) bool {
		return slices.ContainsFunc(all, func(part name) bool { return part.pack == whole.pack && strings.HasPrefix(part.test, whole.test+"/") })
	})
}

// slowest are tests without those that they are part of.
func (results *results) slowest(most int) []name {
	isPart := map[name]bool{}
	for key := range results.tests {
		for whole := key; strings.Contains(whole.test, "/"); {
			whole.test = whole.test[:strings.LastIndex(whole.test, "/")]
			isPart[whole] = true
		}
	}
	all := results.sorted(func(*result) bool { return true }, func(one, other *result) int { return cmp.Compare(other.seconds, one.seconds) })
	all = slices.DeleteFunc(all, func(key name) bool { return isPart[key] })
	return all[:min(most, len(all))]
}

func (results *results) sorted(which func(*result) bool, order func(one, other *result) int) []name {
	keys := slices.DeleteFunc(slices.Collect(maps.Keys(results.tests)), func(key name) bool { return !which(results.tests[key]) })
	slices.SortFunc(keys, func(one, other name) int {
		return cmp.Or(order(results.tests[one], results.tests[other]), strings.Compare(one.String(), other.String()))
	})
	return keys
}

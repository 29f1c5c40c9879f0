// SPDX-License-Identifier: Apache-2.0

// Command summary says what became of tests, from what `go test -json` wrote of them.
//
//	summary -tier NAME -seconds N FILE...   the tests of a tier: how many, how long, the slowest
//	summary FILE...                         all of them, with the logs of those that passed only the second time
//
// It fails where too many passed only the second time: each of them is a bug. It also
// fails where a package failed without a test that did.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// shownSlowest is how many of the slowest tests are named.
	shownSlowest = 5
	// mostRepeated is how many tests may pass only the second time.
	mostRepeated = 3
)

func main() {
	tier := flag.String("tier", "", "a tier whose tests these are")
	seconds := flag.Int("seconds", 0, "how long the tier took")
	flag.Parse()
	results, err := read(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(2)
	}
	if *tier != "" {
		results.writeTier(os.Stdout, *tier, time.Duration(*seconds)*time.Second)
		return
	}
	if !results.writeAll(os.Stdout) {
		os.Exit(1)
	}
}

func read(names []string) (*results, error) {
	found := newResults()
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = found.add(file)
		if err := file.Close(); err != nil {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return found, nil
}

func (results *results) writeTier(to io.Writer, tier string, took time.Duration) {
	fmt.Fprintf(to, "%s: %s, in %s; the slowest:\n", tier, results.counts(), took)
	for _, test := range results.slowest(shownSlowest) {
		fmt.Fprintf(to, "  %6.1f s  %s\n", results.tests[test].seconds, test)
	}
}

// writeAll tells whether all packages ran, and no more tests than may were needed twice.
func (results *results) writeAll(to io.Writer) bool {
	repeated := results.repeated()
	for _, test := range repeated {
		fmt.Fprintf(to, "== %s failed, and passed the second time. Of the first:\n%s", test, results.tests[test].firstLog)
	}
	fmt.Fprintf(to, "%s, %d passed only the second time\n", results.counts(), len(repeated))
	for _, pack := range results.broken {
		fmt.Fprintf(to, "%s failed outside of its tests: it was not built, or TestMain failed\n", pack)
	}
	if len(repeated) > mostRepeated {
		fmt.Fprintf(to, "More than %d tests passed only the second time. Find the cause of each.\n", mostRepeated)
		return false
	}
	return len(results.broken) == 0
}

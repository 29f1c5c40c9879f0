// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// events are lines of `go test -json`: PACKAGE TEST ACTION SECONDS OUTPUT.
func events(t *testing.T, lines ...string) *results {
	t.Helper()
	var text strings.Builder
	for _, line := range lines {
		words := strings.SplitN(line, " ", 5)
		output := ""
		if len(words) == 5 {
			output = fmt.Sprintf(`,"Output":"%s\n"`, words[4])
		}
		fmt.Fprintf(&text, `{"Action":%q,"Package":%q,"Test":%q,"Elapsed":%s%s}`+"\n", words[2], words[0], words[1], words[3], output)
	}
	found := newResults()
	if err := found.add(strings.NewReader(text.String() + `{"Action":"pass","Package":"a"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTierNamesItsSlowestTests(t *testing.T) {
	found := events(t, "a TestOne pass 3", "a TestMany/first pass 5", "a TestMany/second fail 6", "a TestMany fail 11", "b TestOne skip 0")
	var got strings.Builder
	found.writeTier(&got, "unit", 90*time.Second)
	want := `unit: 2 passed, 2 failed, 1 skipped, in 1m30s; the slowest:
     6.0 s  a TestMany/second
     5.0 s  a TestMany/first
     3.0 s  a TestOne
     0.0 s  b TestOne
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

func TestRepeatedTestsAreShownWithTheirLog(t *testing.T) {
	found := events(t,
		"a TestOne run 0", "a TestOne output 0 too late", "a TestOne fail 3", "a TestTwo run 0", "a TestTwo fail 1",
		"a TestOne run 0", "a TestOne output 0 in time", "a TestOne pass 1", "a TestTwo fail 1")
	var got strings.Builder
	if !found.writeAll(&got) {
		t.Error("one test that passed the second time is too many")
	}
	want := "== a TestOne failed, and passed the second time. Of the first:\ntoo late\n1 passed, 1 failed, 0 skipped, 1 passed only the second time\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Error(diff)
	}
}

// A subtest that failed makes its parents fail, which is one fault.
func TestRepeatedSubtestIsCountedOnce(t *testing.T) {
	var lines []string
	for _, action := range []string{"fail", "pass"} {
		for _, test := range []string{"TestA/b/c/d", "TestA/b/c", "TestA/b", "TestA"} {
			lines = append(lines, fmt.Sprintf("a %s %s 1", test, action))
		}
	}
	if got := events(t, lines...).repeated(); len(got) != 1 || got[0].test != "TestA/b/c/d" {
		t.Errorf("repeated are %v", got)
	}
}

func TestManyRepeatedTestsFail(t *testing.T) {
	var lines []string
	for i := range mostRepeated + 1 {
		lines = append(lines, fmt.Sprintf("a Test%d fail 1", i), fmt.Sprintf("a Test%d pass 1", i))
	}
	var got strings.Builder
	if events(t, lines...).writeAll(&got) {
		t.Errorf("nobody minds:\n%s", &got)
	}
}

func TestWhatIsNoEvent(t *testing.T) {
	found := newResults()
	if err := found.add(strings.NewReader("go: downloading x\n" + `{"Action":"pass","Package":"a","Test":"TestOne"}` + "\n")); err != nil || len(found.tests) != 1 {
		t.Errorf("%d tests (%v)", len(found.tests), err)
	}
}

// A package whose TestMain fails has no test to repeat, so that its second attempt passes.
func TestPackageThatFailsWithoutATest(t *testing.T) {
	for name, tc := range map[string]struct {
		events string
		want   bool
	}{
		"a test failed, and passed":  {`{"Action":"fail","Package":"a","Test":"TestOne"}{"Action":"fail","Package":"a"}{"Action":"pass","Package":"a","Test":"TestOne"}{"Action":"pass","Package":"a"}`, true},
		"TestMain failed":            {`{"Action":"fail","Package":"a"}{"Action":"pass","Package":"a"}`, false},
		"TestMain failed at the end": {`{"Action":"pass","Package":"a","Test":"TestOne"}{"Action":"fail","Package":"a"}{"Action":"pass","Package":"a"}`, false},
		"only the second attempt":    {`{"Action":"fail","Package":"a","Test":"TestOne"}{"Action":"fail","Package":"a"}{"Action":"fail","Package":"a"}`, false},
		"another package":            {`{"Action":"fail","Package":"b","Test":"TestOne"}{"Action":"fail","Package":"a"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			found := newResults()
			if err := found.add(strings.NewReader(strings.ReplaceAll(tc.events, "}{", "}\n{") + "\n")); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if found.writeAll(&got) != tc.want || strings.Contains(got.String(), "a failed outside of its tests") == tc.want {
				t.Errorf("the run passes: %t\n%s", !tc.want, &got)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package faults holds that what is said about attacks is tried.
package faults

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that the list of attacks names exists.
func TestAttacksAreTried(t *testing.T) {
	list, err := os.ReadFile("../../docs/adr/0010-bad-input-and-attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, name := range regexp.MustCompile("`Test[A-Za-z]+`").FindAllString(string(list), -1) {
		missing[strings.Trim(name, "`")] = true
	}
	if len(missing) < 20 {
		t.Errorf("the list names only %d tests", len(missing))
	}
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z]+)\(`)
	err = filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			delete(missing, found[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range missing {
		t.Errorf("no test is called %s", name)
	}
}

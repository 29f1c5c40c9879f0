// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// releaseVersion is a semantic version with a leading v. Build metadata is not allowed: a
// tag of an image cannot contain a plus sign.
var releaseVersion = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

func checkReleaseVersion(version string) error {
	if !releaseVersion.MatchString(version) {
		return fmt.Errorf("VERSION must be a semantic version with a leading v, such as v0.1.0 or v0.2.0-rc.1, and not %q", version)
	}
	return nil
}

// releaseNotes returns the section of a version in the changelog, without its heading.
func releaseNotes(changelog, version string) (string, error) {
	content, err := os.ReadFile(changelog)
	if err != nil {
		return "", err
	}
	heading := regexp.MustCompile(`(?m)^## \[?` + regexp.QuoteMeta(strings.TrimPrefix(version, "v")) + `\]?([ \t].*)?$`)
	found := heading.FindIndex(content)
	if found == nil {
		return "", fmt.Errorf("%s has no section for %s: add the heading \"## %s\" above its changes", changelog, version, strings.TrimPrefix(version, "v"))
	}
	section, _, _ := strings.Cut(string(content[found[1]:]), "\n## ")
	section = strings.TrimSpace(section)
	if section == "" {
		return "", fmt.Errorf("%s has no changes below the heading of %s", changelog, version)
	}
	return section + "\n", nil
}

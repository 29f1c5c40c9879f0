// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// plainKey matches keys that need no brackets in a path.
var plainKey = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// child returns the path of a field below another.
func child(path, key string) string {
	switch {
	case strings.ContainsAny(key, `[]"`):
		return fmt.Sprintf("%s[%q]", path, key)
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%s]", path, key)
	case path == "":
		return key
	default:
		return path + "." + key
	}
}

func element(path string, index int) string { return fmt.Sprintf("%s[%d]", path, index) }

// segments splits a path. A key in brackets may contain dots, and in quotes anything.
func segments(path string) (steps []string) {
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '[':
			if quoted, err := strconv.QuotedPrefix(path[1:]); err == nil {
				key, _ := strconv.Unquote(quoted)
				steps, path = append(steps, key), path[len(quoted)+2:]
				continue
			}
			end := strings.IndexByte(path, ']')
			if end < 0 {
				return append(steps, path)
			}
			steps, path = append(steps, path[1:end]), path[end+1:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			steps, path = append(steps, path[:end]), path[end:]
		}
	}
	return steps
}

// compareSegments compares numbers by value: [10] comes after [9].
func compareSegments(a, b string) int {
	first, firstErr := strconv.Atoi(a)
	second, secondErr := strconv.Atoi(b)
	if firstErr == nil && secondErr == nil {
		return first - second
	}
	return strings.Compare(a, b)
}

// lookup returns the value at a path of a JSON value.
func lookup(value any, path string) (any, bool) {
	for _, step := range segments(path) {
		switch node := value.(type) {
		case map[string]any:
			found, ok := node[step]
			if !ok {
				return nil, false
			}
			value = found
		case []any:
			index, err := strconv.Atoi(step)
			if err != nil || index < 0 || index >= len(node) {
				return nil, false
			}
			value = node[index]
		default:
			return nil, false
		}
	}
	return value, true
}

// children returns the paths directly below a path, in order.
func children(value any, path string) (paths []string) {
	found, _ := lookup(value, path)
	switch node := found.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			paths = append(paths, child(path, key))
		}
	case []any:
		for index := range node {
			paths = append(paths, element(path, index))
		}
	}
	return paths
}

// leaves returns the paths of a JSON value that have no children.
func leaves(value any, path string) (paths []string) {
	below := children(value, path)
	if len(below) == 0 {
		return []string{path}
	}
	for _, next := range below {
		paths = append(paths, leaves(value, next)...)
	}
	return paths
}

// isZero reports whether a leaf has the zero value, which is the same as not set.
func isZero(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case int64:
		return value == 0
	case float64:
		return value == 0
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

var (
	// hugeQuantity is a number with an exponent of four digits or more.
	hugeQuantity = regexp.MustCompile(`^[+-]?[0-9.]+[eE][+-]?[0-9]{4,}$`)
	// mayBeHuge matches every document with such a number, unless the number is written
	// with escapes.
	mayBeHuge = regexp.MustCompile(`[eE][+-]?[0-9]{4,}`)
)

// QuantityError is a quantity whose exponent is too large or too small.
type QuantityError struct{ Field, Value string }

func (e *QuantityError) Error() string {
	if e.Field == "" {
		return e.Reason()
	}
	return e.Field + ": " + e.Reason()
}

// Reason is the error without the field's name.
func (e *QuantityError) Reason() string {
	return e.Value + " is too large or too small for a quantity"
}

// CheckQuantities refuses a JSON document with a quantity that has a huge exponent.
// Kubernetes expands quantities to all of their digits when it decodes them, and these
// would exhaust the memory. Call it before the document is decoded into a type with
// quantities. It ignores invalid JSON, which the decoder refuses.
func CheckQuantities(document []byte) error {
	if !mayBeHuge.Match(document) && !bytes.Contains(document, []byte(`\u`)) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var levels []level
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil
		}
		last := len(levels) - 1
		if last >= 0 && !levels[last].isArray && !levels[last].hasKey {
			if key, isKey := token.(string); isKey {
				levels[last].key, levels[last].hasKey = key, true
				continue
			}
		}
		switch token := token.(type) {
		case json.Delim:
			if token == '{' || token == '[' {
				levels = append(levels, level{isArray: token == '['})
				continue
			}
			levels = levels[:last]
		case string, json.Number:
			if text := fmt.Sprint(token); holdsQuantity(levels) && hugeQuantity.MatchString(text) {
				return &QuantityError{Field: pathOf(levels), Value: text}
			}
		}
		if last = len(levels) - 1; last >= 0 {
			levels[last].hasKey = false
		}
	}
}

// ParseQuantity reads a quantity that a user wrote, unless it is huge.
func ParseQuantity(text string) (resource.Quantity, error) {
	if hugeQuantity.MatchString(text) {
		return resource.Quantity{}, &QuantityError{Value: text}
	}
	return resource.ParseQuantity(text)
}

// level is an object or an array that contains a value.
type level struct {
	isArray bool
	// key of the value in an object.
	key    string
	hasKey bool
}

// holdsQuantity reports whether a value may be a quantity. Elements of an array, such as
// the arguments of a command, are not quantities. Neither is the value of an environment
// variable: the field value of an object in an array.
func holdsQuantity(levels []level) bool {
	last := len(levels) - 1
	return last >= 0 && !levels[last].isArray && (levels[last].key != "value" || last == 0 || !levels[last-1].isArray)
}

func pathOf(levels []level) string {
	var keys []string
	for _, level := range levels {
		if !level.isArray {
			keys = append(keys, level.key)
		}
	}
	return strings.Join(keys, ".")
}

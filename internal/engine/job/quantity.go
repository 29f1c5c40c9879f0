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
	// mayBeHuge is in every document with such a number, unless it is spelled with
	// escapes.
	mayBeHuge = regexp.MustCompile(`[eE][+-]?[0-9]{4,}`)
)

// QuantityError is a quantity that cannot be computed.
type QuantityError struct{ Field, Value string }

func (e *QuantityError) Error() string {
	if e.Field == "" {
		return e.Reason()
	}
	return e.Field + ": " + e.Reason()
}

// Reason is what is wrong with the field.
func (e *QuantityError) Reason() string {
	return e.Value + " is too large or too small for a quantity"
}

// CheckQuantities refuses a JSON document with a quantity of a huge exponent.
// Kubernetes computes quantities to the last digit when it decodes them, and this one
// has more digits than fit any memory. It must be called before the document is
// decoded into a type with quantities; what is no JSON is left to the decoder.
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

// level is an object or an array that a value is inside of.
type level struct {
	isArray bool
	// key of the value in an object.
	key    string
	hasKey bool
}

// holdsQuantity tells whether a value may be a quantity. Elements of an array, such as
// the words of a command, are none; nor is the value of a variable, which is an
// element with a name and a value.
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

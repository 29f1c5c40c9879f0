// SPDX-License-Identifier: Apache-2.0

package activity

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

// Members of a report that are not metrics.
const (
	memberStep       = "step"
	memberOf         = "of"
	memberPercentage = "percentage"
	memberRemaining  = "remaining"
)

// maxReportLine is the length up to which lines are read as reports.
const maxReportLine = 64 << 10

// reported is what one line reports.
type reported struct {
	step       *int64
	of         int64
	percentage *int32
	remaining  *int64
	metrics    []protocol.Metric
}

// parseReport reads the JSON object of a line. Members that are neither a number nor a
// string are ignored, so that a program can print more.
func parseReport(text []byte) (reported, bool) {
	if len(text) == 0 || text[0] != '{' || len(text) > maxReportLine {
		return reported{}, false
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if !json.Valid(bytes.TrimSpace(text)) {
		decoder = json.NewDecoder(strings.NewReader(quoteNotNumbers(string(text))))
		decoder.UseNumber()
	}
	if _, err := decoder.Token(); err != nil {
		return reported{}, false
	}
	var found reported
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return reported{}, false
		}
		var value any
		if err := decoder.Decode(&value); err != nil {
			return reported{}, false
		}
		switch value := value.(type) {
		case json.Number:
			found.set(name.(string), value.String(), true)
		case string:
			found.set(name.(string), value, false)
		}
	}
	_, err := decoder.Token()
	return found, err == nil
}

var notNumbers = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(:\s*)(NaN|-?Infinity)(\s*[,}])`)
})

// quoteNotNumbers makes strings of numbers that JSON does not have, but Python prints: a
// loss that is NaN is what users look for.
func quoteNotNumbers(text string) string {
	return notNumbers().ReplaceAllString(text, `$1"$2"$3`)
}

// set sets a member. A member of another type than expected is ignored.
func (r *reported) set(name, value string, isNumeric bool) {
	switch name {
	case memberStep:
		if number, ok := wholeNumber(value); ok {
			r.step = &number
		}
	case memberOf:
		r.of, _ = wholeNumber(value)
	case memberPercentage:
		if number, err := strconv.ParseFloat(value, 64); err == nil && number >= 0 && number <= 100 {
			r.percentage = new(int32(number))
		}
	case memberRemaining:
		if number, ok := wholeNumber(value); ok {
			r.remaining = &number
		}
	default:
		r.addMetric(name, value, isNumeric)
	}
}

// wholeNumber accepts 3.0 and 1e3, because languages without integers print those.
func wholeNumber(text string) (int64, bool) {
	if number, err := strconv.ParseInt(text, 10, 64); err == nil {
		return number, number >= 0
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(number) || number < 0 || number > 1<<53 {
		return 0, false
	}
	return int64(number), true
}

// addMetric adds a metric. A number with more digits than the limit is rounded; other
// values and names are cut.
func (r *reported) addMetric(name, value string, isNumeric bool) {
	if number, err := strconv.ParseFloat(value, 64); isNumeric && err == nil && len(value) > protocol.MaxMetricLength {
		value = strconv.FormatFloat(number, 'g', -1, 64)
	}
	if name = cut(name); name != "" && len(r.metrics) < protocol.MaxMetrics {
		r.metrics = append(r.metrics, protocol.Metric{Name: name, Value: cut(value)})
	}
}

// cut returns a text that is safe to show and not longer than the limit.
func cut(text string) string {
	text = strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")))
	if len(text) <= protocol.MaxMetricLength {
		return text
	}
	end := protocol.MaxMetricLength
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

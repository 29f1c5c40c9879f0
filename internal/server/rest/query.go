// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// parameter is a query parameter of a route.
type parameter struct {
	name, description string
	// kind is string, integer, boolean or date-time.
	kind string
	// values are the allowed values; empty allows any.
	values []string
	// min and max of an integer.
	min, max int64
	// defaultValue is the value of a parameter that is not set.
	defaultValue string
	required     bool
}

// query has the query parameters of a request.
type query struct {
	values url.Values
	err    error
}

func newQuery(request *http.Request) *query {
	values, err := url.ParseQuery(request.URL.RawQuery)
	return &query{values: values, err: err}
}

// check refuses unknown parameters, so that a misspelt filter is not ignored.
func (q *query) check(known []parameter) error {
	if q.err != nil {
		return apierror.Invalid("query", "cannot be read: %v", q.err)
	}
	for name, values := range q.values {
		index := slices.IndexFunc(known, func(one parameter) bool { return one.name == name })
		if index < 0 {
			return apierror.Invalid(name, "unknown parameter; this path has %s", orNone(namesOf(known)))
		}
		if len(values) > 1 {
			return apierror.Invalid(name, "is given %d times", len(values))
		}
		if err := known[index].check(values[0]); err != nil {
			return err
		}
	}
	for i := range known {
		if known[i].required && q.values.Get(known[i].name) == "" {
			return apierror.Invalid(known[i].name, "is required: %s", known[i].description)
		}
	}
	return nil
}

func namesOf(known []parameter) (names []string) {
	for i := range known {
		names = append(names, known[i].name)
	}
	return names
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// check refuses a value that does not have the parameter's type.
func (p *parameter) check(value string) error {
	if !utf8.ValidString(value) {
		return apierror.Invalid(p.name, "is not valid UTF-8")
	}
	if strings.ContainsRune(value, 0) {
		return apierror.Invalid(p.name, "has a zero byte")
	}
	switch p.kind {
	case "integer":
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil || number < p.min || number > p.max {
			return apierror.Invalid(p.name, "%q is not an integer from %d to %d", value, p.min, p.max)
		}
	case "boolean":
		if value != "true" && value != "false" {
			return apierror.Invalid(p.name, "%q must be true or false", value)
		}
	case "date-time":
		if _, err := time.Parse(time.RFC3339, value); err != nil {
			return apierror.Invalid(p.name, "%q is not a time such as 2026-01-31T12:00:00Z", value)
		}
	}
	if len(p.values) > 0 && !slices.Contains(p.values, value) {
		return apierror.Invalid(p.name, "%q is not one of %s", value, strings.Join(p.values, ", "))
	}
	return nil
}

// text, flag, number and time return values that check has accepted.
func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) flag(name string) bool { return q.values.Get(name) == "true" }

func (q *query) number(name string) *int64 {
	number, err := strconv.ParseInt(q.values.Get(name), 10, 64)
	if err != nil {
		return nil
	}
	return &number
}

func (q *query) numberOr(name string, defaultValue int64) int64 {
	if number := q.number(name); number != nil {
		return *number
	}
	return defaultValue
}

func (q *query) time(name string) time.Time {
	moment, err := time.Parse(time.RFC3339, q.values.Get(name))
	if err != nil {
		return time.Time{}
	}
	return moment
}

// checkName refuses an invalid name before it becomes part of a URL.
func checkName(field, value string) error {
	if value == "" {
		return nil
	}
	if faults := validation.IsDNS1123Subdomain(value); len(faults) > 0 {
		return apierror.Invalid(field, "%q is not a valid name: %s", value, faults[0])
	}
	return nil
}

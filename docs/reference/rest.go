// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"

	"github.com/trireme-mpi/trireme/internal/server/rest"
)

// openAPI is the part of the OpenAPI document that the reference shows.
type openAPI struct {
	Paths      map[string]map[string]*operation
	Components struct{ Schemas map[string]property }
}

type operation struct {
	OperationID, Summary string
	Tags                 []string
	Parameters           []struct {
		Name, In, Description string
		Required              bool
		Schema                property
	}
	RequestBody struct{ Content map[string]content }
	Responses   map[string]struct {
		Description string
		Content     map[string]content
	}
	// Method and Path are the keys of the operation in the document.
	Method, Path string `json:"-"`
}

type content struct{ Schema property }

// restPage is the content of rest.md.
type restPage struct {
	Groups []group
	// Errors are the codes and texts that every operation has.
	Errors []restError
	Types  []*structType
}

// group has the operations of one kind.
type group struct {
	Title      string
	Operations []*operation
}

type restError struct{ Code, Text string }

// readREST reads the document that the server serves at /openapi.json.
func readREST() (*restPage, error) {
	api, err := rest.New(nil, rest.Options{})
	if err != nil {
		return nil, err
	}
	answer := httptest.NewRecorder()
	api.Document().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var document openAPI
	if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
		return nil, err
	}
	page := &restPage{Groups: []group{{Title: "TrainJobs"}, {Title: "MPIJobs"}, {Title: "Namespaces and runtimes"}}}
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(document.Paths[path])) {
			one := document.Paths[path][method]
			one.Method, one.Path = strings.ToUpper(method), path
			section := slices.Index([]string{"TrainJob", "MPIJob"}, strings.Join(one.Tags, ""))
			if section < 0 {
				section = 2
			}
			page.Groups[section].Operations = append(page.Groups[section].Operations, one)
		}
	}
	page.Errors = commonErrors(page.Groups)
	for _, name := range slices.Sorted(maps.Keys(document.Components.Schemas)) {
		if !isKind(name) {
			page.Types = append(page.Types, tableOf(name, document.Components.Schemas[name]))
		}
	}
	return page, nil
}

// commonErrors finds the errors that every operation has, and removes them there.
func commonErrors(groups []group) (common []restError) {
	var all []*operation
	for _, one := range groups {
		all = append(all, one.Operations...)
	}
	for _, code := range slices.Sorted(maps.Keys(all[0].Responses)) {
		lacks := func(one *operation) bool { _, has := one.Responses[code]; return !has }
		if code < "400" || slices.ContainsFunc(all, lacks) {
			continue
		}
		common = append(common, restError{code, all[0].Responses[code].Description})
		for _, one := range all {
			delete(one.Responses, code)
		}
	}
	return common
}

// Anchor is the heading that describes an operation. One with the suffix Flat is the same
// as the one without, with the namespace as a parameter.
func (o *operation) Anchor() string {
	return strings.ToLower(strings.TrimSuffix(o.OperationID, "Flat"))
}

// HasSection reports whether an operation has a heading of its own.
func (o *operation) HasSection() bool { return !strings.HasSuffix(o.OperationID, "Flat") }

// Success describes the responses of an operation that are not errors: 200 with a Job.
func (o *operation) Success() (texts []string) {
	for _, code := range slices.Sorted(maps.Keys(o.Responses)) {
		response := o.Responses[code]
		switch {
		case code >= "400":
		case len(response.Content) == 0 && response.Description != o.Summary:
			texts = append(texts, fmt.Sprintf("%s (%s)", code, response.Description))
		case len(response.Content) == 0:
			texts = append(texts, code+" without a body")
		default:
			texts = append(texts, code+" with "+mediaTypes(response.Content))
		}
	}
	return texts
}

// Errors are the codes of an operation that not every operation has.
func (o *operation) Errors() (codes []string) {
	for _, code := range slices.Sorted(maps.Keys(o.Responses)) {
		if code >= "400" {
			codes = append(codes, code)
		}
	}
	return codes
}

// Body describes the body of a request; empty if there is none.
func (o *operation) Body() string { return mediaTypes(o.RequestBody.Content) }

// mediaTypes are the types of a body, each with the media types that have it.
func mediaTypes(contents map[string]content) string {
	media := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		text := contents[name].Schema.Text()
		media[text] = append(media[text], "`"+name+"`")
	}
	var texts []string
	for _, text := range slices.Sorted(maps.Keys(media)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", text, strings.Join(media[text], ", ")))
	}
	return strings.Join(texts, "; ")
}

// tableOf lists the fields of a schema by name.
func tableOf(name string, schema property) *structType {
	table := &structType{Name: name}
	for _, key := range slices.Sorted(maps.Keys(schema.Properties)) {
		one := schema.Properties[key]
		table.Fields = append(table.Fields, field{Name: key, Type: one.Text(), Description: one.Description, Required: slices.Contains(schema.Required, key)})
	}
	return table
}

// isKind tells whether api.md describes a schema, because it is one of a CRD.
func isKind(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "Spec"), "Status")
	return slices.Contains([]string{"TrainJob", "MPIJob", "TrainingRuntime", "ClusterTrainingRuntime"}, name)
}

// Text is a schema in words, with links.
func (p property) Text() string {
	switch {
	case p.Ref != "":
		name := strings.TrimPrefix(p.Ref, "#/components/schemas/")
		page := ""
		if isKind(name) {
			page = "api.md"
		}
		return fmt.Sprintf("[%s](%s#%s)", name, page, strings.ToLower(name))
	case len(p.AnyOf) > 0:
		var texts []string
		for _, one := range p.AnyOf {
			texts = append(texts, one.Text())
		}
		return strings.Join(texts, " or ")
	case p.Items != nil:
		return "list of " + p.Items.Text()
	case p.AdditionalProperties != nil:
		return "map of " + p.AdditionalProperties.Text()
	case p.Minimum != nil && p.Maximum != nil:
		return fmt.Sprintf("%s, %d to %d", p.Type, *p.Minimum, *p.Maximum)
	case p.Format != "":
		return p.Type + ", " + p.Format
	case p.Type == "":
		return "any value"
	default:
		return p.Type
	}
}

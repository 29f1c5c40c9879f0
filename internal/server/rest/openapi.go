// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/charts"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// commonErrors are the error codes of every route.
var commonErrors = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusMisdirectedRequest, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// newDocument returns the OpenAPI document of the routes. The schemas of jobs are those of
// the CRDs.
func newDocument(routes []*route, version string) ([]byte, error) {
	schemas := schemas{}
	if err := schemas.addKinds(); err != nil {
		return nil, err
	}
	schemas["Error"] = errorSchema(schemas)
	paths := schema{}
	for _, route := range routes {
		if paths[route.path] == nil {
			paths[route.path] = schema{}
		}
		paths[route.path].(schema)[strings.ToLower(route.method)] = schemas.operation(route)
	}
	return json.Marshal(schema{
		"openapi": "3.1.0",
		"info": schema{
			"title": "Trireme", "version": version,
			"description": "MPI training jobs on Kubernetes. Each request acts with the permissions of its token.",
		},
		"security":   []any{schema{"bearer": []string{}}},
		"paths":      paths,
		"components": schema{"schemas": schemas, "securitySchemes": schema{"bearer": schema{"type": "http", "scheme": "bearer"}}},
	})
}

// addKinds adds the schemas of jobs and runtimes.
func (s schemas) addKinds() error {
	for _, content := range charts.CRDs() {
		var definition struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(content, &definition); err != nil {
			return fmt.Errorf("read a CRD: %w", err)
		}
		kind := definition.Spec.Names.Kind
		s[kind] = definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		for part, name := range map[string]string{"spec": kind + "Spec", "status": kind + "Status"} {
			s[name] = schema{"type": "object"}
			if found, has := s[kind]["properties"].(map[string]any)[part].(map[string]any); has {
				s[name] = found
			}
		}
	}
	for _, kind := range jobview.Kinds {
		s[string(kind.Kind)+"List"] = schema{"type": "object", "required": []string{"apiVersion", "kind", "metadata", "items"}, "properties": schema{
			"apiVersion": schema{"type": "string"}, "kind": schema{"type": "string"}, "metadata": s.of(reflect.TypeFor[listMeta]()),
			"items": schema{"type": "array", "items": reference(string(kind.Kind))},
		}}
	}
	return nil
}

func errorSchema(schemas schemas) schema {
	schemas.of(reflect.TypeFor[apierror.Error]())
	result := schemas["Error"]
	result["properties"].(schema)["error"] = schema{"type": "string", "description": "same as message, for older clients"}
	return result
}

// operation describes a route.
func (s schemas) operation(route *route) schema {
	result := schema{"operationId": route.id, "summary": route.summary, "responses": s.responses(route)}
	if parameters := parametersOf(route); len(parameters) > 0 {
		result["parameters"] = parameters
	}
	if route.kind != nil {
		result["tags"] = []string{string(route.kind.Kind)}
	}
	if route.body != nil {
		result["requestBody"] = schema{"required": true, "content": schema{"application/json": schema{"schema": s.schemaOf(route.body)}, "application/yaml": schema{"schema": s.schemaOf(route.body)}}}
	}
	return result
}

func (s schemas) responses(route *route) schema {
	success := schema{"description": route.summary}
	if content := s.content(route); len(content) > 0 {
		success["content"] = content
	}
	responses := schema{strconv.Itoa(route.success): success}
	if route.canFollow() {
		responses[strconv.Itoa(http.StatusSwitchingProtocols)] = schema{"description": "The same data over a WebSocket: each message is a JSON object"}
	}
	for _, code := range slices.Concat(commonErrors, route.errors) {
		responses[strconv.Itoa(code)] = schema{"description": http.StatusText(code), "content": schema{"application/json": schema{"schema": reference("Error")}}}
	}
	return responses
}

// content returns the media types of a response.
func (s schemas) content(route *route) schema {
	result, text := schema{}, schema{"schema": schema{"type": "string"}}
	switch response := route.response.(type) {
	case nil:
	case plainText:
		result["text/plain"] = text
	case eventStream:
	case logList:
		result["application/json"] = schema{"schema": s.schemaOf(response)}
		// With follow=true, each line is an object.
		result["application/x-ndjson"] = schema{"schema": s.schemaOf(logLine{})}
	default:
		result["application/json"] = schema{"schema": s.schemaOf(response)}
	}
	if route.canFollow() {
		result["text/event-stream"] = text
	}
	return result
}

// canFollow reports whether a client can receive messages until one side ends the stream.
func (r *route) canFollow() bool {
	_, isWatch := r.response.(eventStream)
	return isWatch || slices.ContainsFunc(r.parameters, func(one parameter) bool { return one.name == "follow" })
}

// schemaOf returns the schema of a body or a response.
func (s schemas) schemaOf(value any) schema {
	switch value := value.(type) {
	case jobBody:
		return reference(string(value.kind.Kind))
	case submission:
		if value.kind == jobview.TrainJobs {
			return schema{"anyOf": []any{reference("TrainJob"), reference("TrainJobSpec")}}
		}
		return reference(string(value.kind.Kind))
	case jobList:
		return reference(string(value.kind.Kind) + "List")
	case statusBody:
		return reference(string(value.kind.Kind) + "Status")
	case runtimeBody:
		return reference(value.kind)
	case anyJob:
		return schema{"anyOf": []any{reference("TrainJob"), reference("MPIJob")}}
	case anyDocument:
		return schema{"type": "object"}
	default:
		return s.of(reflect.TypeOf(value))
	}
}

// placeholder is a variable part of a path.
var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

func parametersOf(route *route) (result []schema) {
	for _, match := range placeholder.FindAllStringSubmatch(route.path, -1) {
		kind := schema{"type": "string", "maxLength": 253, "pattern": `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`}
		if match[1] == "index" {
			kind = schema{"type": "integer", "minimum": 0}
		}
		result = append(result, schema{"name": match[1], "in": "path", "required": true, "schema": kind})
	}
	for i := range route.parameters {
		result = append(result, route.parameters[i].schema())
	}
	return result
}

func (p *parameter) schema() schema {
	kind := schema{"type": p.kind}
	switch {
	case p.kind == "date-time":
		kind = schema{"type": "string", "format": "date-time"}
	case p.kind == "integer":
		kind["minimum"], kind["maximum"] = p.min, p.max
	case len(p.values) > 0:
		kind["enum"] = p.values
	}
	if number, err := strconv.Atoi(p.defaultValue); err == nil {
		kind["default"] = number
	} else if p.defaultValue != "" && p.kind != "boolean" {
		kind["default"] = p.defaultValue
	}
	return schema{"name": p.name, "in": "query", "required": p.required, "description": p.description, "schema": kind}
}

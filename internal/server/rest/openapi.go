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

	"github.com/trireme-mpi/trireme/config/crd"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// errorsOfAll are the codes that any call may be answered with.
var errorsOfAll = []int{
	http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusMisdirectedRequest, http.StatusTooManyRequests,
	http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// newDocument is the OpenAPI document of the routes. The schemas of jobs are those of
// the CRDs.
func newDocument(routes []*route, version string) ([]byte, error) {
	found := schemas{}
	if err := found.addKinds(); err != nil {
		return nil, err
	}
	found["Error"] = errorSchema(found)
	paths := schema{}
	for _, route := range routes {
		if paths[route.path] == nil {
			paths[route.path] = schema{}
		}
		paths[route.path].(schema)[strings.ToLower(route.method)] = found.operation(route)
	}
	return json.Marshal(schema{
		"openapi": "3.1.0",
		"info": schema{
			"title": "Trireme", "version": version,
			"description": "MPI training jobs on Kubernetes. Each request acts with the permissions of its token.",
		},
		"security":   []any{schema{"bearer": []string{}}},
		"paths":      paths,
		"components": schema{"schemas": found, "securitySchemes": schema{"bearer": schema{"type": "http", "scheme": "bearer"}}},
	})
}

// addKinds are the schemas of jobs and runtimes, by their kinds.
func (s schemas) addKinds() error {
	for _, content := range crd.All() {
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

func errorSchema(found schemas) schema {
	found.of(reflect.TypeFor[apierror.Error]())
	made := found["Error"]
	made["properties"].(schema)["error"] = schema{"type": "string", "description": "same as message, for older clients"}
	return made
}

// operation is one route.
func (s schemas) operation(route *route) schema {
	made := schema{"operationId": route.id, "summary": route.summary, "responses": s.responses(route)}
	if parameters := parametersOf(route); len(parameters) > 0 {
		made["parameters"] = parameters
	}
	if route.kind != nil {
		made["tags"] = []string{string(route.kind.Kind)}
	}
	if route.body != nil {
		made["requestBody"] = schema{"required": true, "content": schema{"application/json": schema{"schema": s.shape(route.body)}, "application/yaml": schema{"schema": s.shape(route.body)}}}
	}
	return made
}

func (s schemas) responses(route *route) schema {
	success := schema{"description": route.summary}
	if content := s.content(route); len(content) > 0 {
		success["content"] = content
	}
	responses := schema{strconv.Itoa(route.success): success}
	if route.stream != nil {
		responses[strconv.Itoa(http.StatusSwitchingProtocols)] = schema{"description": "The same data over a WebSocket: each message is a JSON object"}
	}
	for _, code := range slices.Concat(errorsOfAll, route.errors) {
		responses[strconv.Itoa(code)] = schema{"description": http.StatusText(code), "content": schema{"application/json": schema{"schema": reference("Error")}}}
	}
	return responses
}

// content are the forms that an answer can have.
func (s schemas) content(route *route) schema {
	made, text := schema{}, schema{"schema": schema{"type": "string"}}
	switch found := route.found.(type) {
	case nil:
	case plainText:
		made["text/plain"] = text
	case eventStream:
	case logList:
		made["application/json"] = schema{"schema": s.shape(found)}
		// Followed, it is lines of which each is an object.
		made["application/x-ndjson"] = schema{"schema": s.shape(logLine{})}
	default:
		made["application/json"] = schema{"schema": s.shape(found)}
	}
	if route.stream != nil {
		made["text/event-stream"] = text
	}
	return made
}

// shape is the schema of what goes in or out.
func (s schemas) shape(value any) schema {
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
	default:
		return s.of(reflect.TypeOf(value))
	}
}

// placeholder is a part of a path that a request fills in.
var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

func parametersOf(route *route) (found []schema) {
	for _, match := range placeholder.FindAllStringSubmatch(route.path, -1) {
		kind := schema{"type": "string", "maxLength": 253, "pattern": `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`}
		if match[1] == "index" {
			kind = schema{"type": "integer", "minimum": 0}
		}
		found = append(found, schema{"name": match[1], "in": "path", "required": true, "schema": kind})
	}
	for i := range route.parameters {
		found = append(found, route.parameters[i].schema())
	}
	return found
}

func (p *parameter) schema() schema {
	kind := schema{"type": p.kind}
	switch {
	case p.kind == "date-time":
		kind = schema{"type": "string", "format": "date-time"}
	case p.kind == "integer":
		kind["minimum"], kind["maximum"] = p.least, p.most
	case len(p.words) > 0:
		kind["enum"] = p.words
	}
	if number, err := strconv.Atoi(p.usual); err == nil {
		kind["default"] = number
	} else if p.usual != "" && p.kind != "boolean" {
		kind["default"] = p.usual
	}
	return schema{"name": p.name, "in": "query", "required": p.required, "description": p.description, "schema": kind}
}

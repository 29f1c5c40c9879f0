// SPDX-License-Identifier: Apache-2.0

// Package api has tests of all API packages together: what reads the types, and
// what Kubernetes makes of their comments.
package api

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

const module = "github.com/trireme-mpi/trireme/api/"

// kinds are the types that users write and read.
var kinds = []reflect.Type{
	reflect.TypeFor[v2beta1.MPIJob](), reflect.TypeFor[v2alpha1.TrainJob](),
	reflect.TypeFor[v2alpha1.TrainingRuntime](), reflect.TypeFor[v2alpha1.ClusterTrainingRuntime](),
}

// apiField is a field of one of our types, as the compiler and as the reader see
// it.
type apiField struct {
	// name such as v2beta1.MPIJobSpec.SlotsPerWorker.
	name string
	// json is its name in YAML; empty for what is inlined.
	json string
	// omitted when it is empty.
	omitted bool
	// what is in the field.
	is reflect.Type
	// comment without markers, and markers without their plus.
	comment string
	markers []string
}

func (field apiField) has(marker string) bool {
	return slices.ContainsFunc(field.markers, func(own string) bool { return own == marker || strings.HasPrefix(own, marker+"=") })
}

// apiFields are the fields of every type of ours that a user can reach.
func apiFields(t *testing.T) []apiField {
	t.Helper()
	comments := fieldComments(t)
	var fields []apiField
	for _, structure := range ourStructs() {
		for i := range structure.NumField() {
			field := structure.Field(i)
			tag, tagged := field.Tag.Lookup("json")
			if !tagged {
				t.Errorf("%s.%s has no JSON name", structure, field.Name)
			}
			name, options, _ := strings.Cut(tag, ",")
			made := apiField{name: structure.String() + "." + field.Name, json: name, omitted: options == "omitempty", is: field.Type}
			text, found := comments[made.name]
			if !found {
				t.Errorf("the source of %s was not found", made.name)
			}
			made.comment, made.markers = split(text)
			fields = append(fields, made)
		}
	}
	return fields
}

// ourStructs are the structs of our packages that the kinds are made of.
func ourStructs() []reflect.Type {
	found := map[string]reflect.Type{}
	var visit func(reflect.Type)
	visit = func(visited reflect.Type) {
		switch visited.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(visited.Elem())
		case reflect.Struct:
			if _, known := found[visited.String()]; known || !strings.HasPrefix(visited.PkgPath(), module) {
				return
			}
			found[visited.String()] = visited
			for i := range visited.NumField() {
				visit(visited.Field(i).Type)
			}
		}
	}
	for _, kind := range kinds {
		visit(kind)
	}
	structs := make([]reflect.Type, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		structs = append(structs, found[name])
	}
	return structs
}

// fieldComments are the comments of the source, by package, type and field.
func fieldComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for _, file := range sources(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			spec, isType := node.(*ast.TypeSpec)
			if !isType {
				return true
			}
			if structure, isStruct := spec.Type.(*ast.StructType); isStruct {
				for _, field := range structure.Fields.List {
					for _, name := range fieldNames(field) {
						comments[parsed.Name.Name+"."+spec.Name.Name+"."+name] = commentText(field.Doc)
					}
				}
			}
			return false
		})
	}
	return comments
}

// fieldNames of an embedded field is that of its type.
func fieldNames(field *ast.Field) []string {
	var names []string
	for _, name := range field.Names {
		names = append(names, name.Name)
	}
	if len(names) > 0 {
		return names
	}
	switch embedded := field.Type.(type) {
	case *ast.Ident:
		return []string{embedded.Name}
	case *ast.SelectorExpr:
		return []string{embedded.Sel.Name}
	}
	return nil
}

// commentText has markers too, which ast.CommentGroup.Text may drop.
func commentText(group *ast.CommentGroup) string {
	if group == nil {
		return ""
	}
	var lines []string
	for _, comment := range group.List {
		lines = append(lines, strings.TrimSpace(strings.TrimPrefix(comment.Text, "//")))
	}
	return strings.Join(lines, "\n")
}

func split(text string) (comment string, markers []string) {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if marker, isMarker := strings.CutPrefix(line, "+"); isMarker {
			markers = append(markers, marker)
		} else {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " "), markers
}

// sources are our files that somebody wrote.
func sources(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(filepath.Base(path), "zz_generated") && !strings.HasSuffix(path, ".pb.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	return files
}

// Every type that users can reach is looked at below: if the walk through the
// types lost its way, nothing would fail.
func TestTypesAreFound(t *testing.T) {
	var got []string
	for _, structure := range ourStructs() {
		got = append(got, structure.String())
	}
	for _, want := range []string{
		"training.NetworkPolicy", "training.PodStatus", "training.Progress", "training.TimelineEntry", "training.WorkerPodStatus",
		"v2alpha1.ClusterTrainingRuntime", "v2alpha1.Constraints", "v2alpha1.InitializerStorage", "v2alpha1.ReplicatedJob", "v2alpha1.SecretRef", "v2alpha1.QueuedGangPolicy",
		"v2beta1.JobCondition", "v2beta1.MPIJob", "v2beta1.ReplicaSpec", "v2beta1.ReplicaStatus", "v2beta1.SchedulingPolicy",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among %v", want, got)
		}
	}
	// And the other way round: a type that no kind is made of is described to nobody.
	var written []string
	for name := range fieldComments(t) {
		structure := name[:strings.LastIndex(name, ".")]
		if !strings.HasSuffix(structure, "List") && !slices.Contains(written, structure) {
			written = append(written, structure)
		}
	}
	slices.Sort(written)
	if diff := cmp.Diff(written, got); diff != "" {
		t.Errorf("types (-written +reached):\n%s", diff)
	}
}

// excepted are the fields that Kubernetes describes itself.
func excepted(field apiField) bool { return field.json == "" || field.json == "metadata" }

// kubectl explain shows the comment to people who know the name in YAML.
func TestCommentsStartWithTheNameInYAML(t *testing.T) {
	for _, field := range apiFields(t) {
		if excepted(field) {
			continue
		}
		first := regexp.MustCompile(`^[A-Za-z]+`).FindString(field.comment)
		if first != field.json {
			t.Errorf("the comment of %s starts with %q, and its name in YAML is %s", field.name, first, field.json)
		}
		if !strings.HasSuffix(field.comment, ".") {
			t.Errorf("the comment of %s does not end as a sentence: %q", field.name, field.comment)
		}
	}
}

// Without a marker it is the JSON tag that decides, by accident.
func TestFieldsAreOptionalOrRequired(t *testing.T) {
	for _, field := range apiFields(t) {
		if excepted(field) {
			continue
		}
		if field.has("optional") && field.has("required") {
			t.Errorf("%s is optional and required", field.name)
		}
		if !field.has("optional") && !field.has("required") {
			t.Errorf("%s is neither optional nor required", field.name)
		}
	}
}

// A required field that is left out when it is empty could not be sent empty.
func TestOptionalFieldsAreLeftOutWhenEmpty(t *testing.T) {
	for _, field := range apiFields(t) {
		if !excepted(field) && (field.has("optional") && !field.omitted || field.has("required") && field.omitted) {
			t.Errorf("%s is %v; left out when empty: %t", field.name, field.markers, field.omitted)
		}
	}
}

// Server-side apply replaces a list as a whole unless it is told what an item is
// called.
func TestListsOfStructsSayHowTheyMerge(t *testing.T) {
	lists := 0
	for _, field := range apiFields(t) {
		if field.is.Kind() != reflect.Slice {
			continue
		}
		item := field.is.Elem()
		for item.Kind() == reflect.Pointer {
			item = item.Elem()
		}
		if item.Kind() != reflect.Struct {
			continue
		}
		lists++
		if !field.has("listType") {
			t.Errorf("%s is a list of structs without +listType", field.name)
		}
		if slices.Contains(field.markers, "listType=map") && !field.has("listMapKey") {
			t.Errorf("%s is a map without +listMapKey", field.name)
		}
	}
	if lists < 8 {
		t.Errorf("only %d lists of structs were found", lists)
	}
}

// What another operator stored must read back unchanged, so the schema adds
// nothing.
func TestNoFieldHasADefault(t *testing.T) {
	for _, file := range sources(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			if strings.Contains(line, "+kubebuilder:default") || strings.Contains(line, "+default") {
				t.Errorf("%s:%d: %s", file, number, strings.TrimSpace(line))
			}
		}
	}
}

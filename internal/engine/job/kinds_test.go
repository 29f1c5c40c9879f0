// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	repository = "../../.."
	module     = "github.com/trireme-mpi/trireme/"
	model      = module + "internal/engine/job"
)

// kindless are the packages that must not depend on the kind. The differences between
// kinds are data in Traits; only the operator's kinds.go may compare kinds, to read and
// write objects.
var kindless = []string{"internal/engine/plan", "internal/engine/diagnosis", "internal/engine/gang", "internal/engine/quota", "internal/operator"}

const mayAsk = "internal/operator/kinds.go"

func TestNoCodeDependsOnKind(t *testing.T) {
	exports := exportsOf(t, kindless...)
	for _, name := range kindless {
		t.Run(name, func(t *testing.T) {
			paths, err := filepath.Glob(filepath.Join(repository, name, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			set := token.NewFileSet()
			var files []*ast.File
			for _, path := range paths {
				if strings.HasSuffix(path, "_test.go") {
					continue
				}
				file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, file)
			}
			for _, question := range questions(t, exports, set, module+name, files...) {
				if !strings.HasPrefix(question, mayAsk+":") {
					t.Errorf("%s: use the Traits of the kind", question)
				}
			}
		})
	}
}

// The test above would prove nothing if it could not find comparisons.
func TestKindComparisonsAreFound(t *testing.T) {
	source := `package asks
		import (
			"github.com/trireme-mpi/trireme/internal/engine/job"
			metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
		)
		type scope struct { job *job.Job }
		func isEqual(made *job.Job) bool { return made.Kind == job.KindMPIJob }
		func isOther(scope scope) bool { return "MPIJob" != scope.job.Kind }
		func switches(made *job.Job) string {
			switch kind := made.Kind; kind {
			case "TrainJob":
				return "JobSet"
			}
			return ""
		}
		func asText(made *job.Job) bool { return string(made.Kind) == "MPIJob" }
		func asType(made *job.Job) bool { return made.Kind.Type() == "mpijob" }
		func isOwner(made *job.Job, owner metav1.OwnerReference) bool {
			return owner.Kind == string(made.Kind) && made.Kind.Traits().RestartsAsWhole
		}`
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, filepath.Join(repository, "asks.go"), source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"asks.go:7: compares a Kind", "asks.go:7: names KindMPIJob", "asks.go:8: compares a Kind", "asks.go:10: compares a Kind",
		"asks.go:16: compares with MPIJob", "asks.go:17: compares with mpijob",
	}
	if diff := cmp.Diff(want, questions(t, exportsOf(t, "internal/engine/plan"), set, module+"asks", file)); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
}

// questions are the positions in a package where the kind of a job is compared.
func questions(t *testing.T, exports map[string]string, set *token.FileSet, path string, files ...*ast.File) (found []string) {
	t.Helper()
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(set, "gc", open)}
	if _, err := config.Check(path, set, files, info); err != nil {
		t.Fatal(err)
	}
	note := func(at token.Pos, what string) {
		position := set.Position(at)
		name, err := filepath.Rel(repository, position.Filename)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprintf("%s:%d: %s", filepath.ToSlash(name), position.Line, what))
	}
	isKind := func(expression ast.Expr) bool {
		named, isNamed := types.Unalias(info.TypeOf(expression)).(*types.Named)
		return isNamed && named.Obj().Name() == "Kind" && named.Obj().Pkg().Path() == model
	}
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.BinaryExpr:
				if node.Op != token.EQL && node.Op != token.NEQ {
					break
				}
				if isKind(node.X) || isKind(node.Y) {
					note(node.Pos(), "compares a Kind")
					break
				}
				for _, side := range []ast.Expr{node.X, node.Y} {
					if text := constant(info, side); strings.EqualFold(text, "TrainJob") || strings.EqualFold(text, "MPIJob") {
						note(node.Pos(), "compares with "+text)
					}
				}
			case *ast.SwitchStmt:
				if node.Tag != nil && isKind(node.Tag) {
					note(node.Pos(), "compares a Kind")
				}
			case *ast.Ident:
				if used := info.Uses[node]; used != nil && used.Pkg() != nil && used.Pkg().Path() == model && (used.Name() == "KindTrainJob" || used.Name() == "KindMPIJob") {
					note(node.Pos(), "names "+used.Name())
				}
			}
			return true
		})
	}
	return found
}

// constant is the value of a constant string expression.
func constant(info *types.Info, expression ast.Expr) string {
	if value := info.Types[expression].Value; value != nil {
		return strings.Trim(value.ExactString(), `"`)
	}
	return ""
}

// exportsOf are the export data files of the given packages and their dependencies.
func exportsOf(t *testing.T, names ...string) map[string]string {
	t.Helper()
	arguments := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}
	for _, name := range names {
		arguments = append(arguments, "./"+name)
	}
	list := exec.Command("go", arguments...)
	list.Dir = repository
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(output)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	return exports
}

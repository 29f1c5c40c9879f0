package validation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// purePackages decide from what they are handed: no cluster, no clock, no dice.
var purePackages = []string{"internal/job", "internal/plan", "internal/quota", "internal/validation"}

const repository = "../.."

func TestPurePackagesReachNoCluster(t *testing.T) {
	for _, name := range purePackages {
		t.Run(name, func(t *testing.T) {
			list := exec.Command("go", "list", "-deps", "./"+name)
			list.Dir = repository
			output, err := list.Output()
			if err != nil {
				t.Fatalf("go list: %v", err)
			}
			packages := strings.Fields(string(output))
			if !slices.Contains(packages, "k8s.io/api/core/v1") {
				t.Fatalf("%d packages, and none of them Kubernetes' own: the list cannot be right", len(packages))
			}
			for _, module := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"} {
				if at := slices.IndexFunc(packages, func(imported string) bool { return strings.HasPrefix(imported+"/", module+"/") }); at >= 0 {
					t.Errorf("%s needs %s", name, packages[at])
				}
			}
		})
	}
}

func TestPurePackagesHaveNoClockAndNoDice(t *testing.T) {
	for _, name := range purePackages {
		t.Run(name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(repository, name, "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			read := 0
			for _, file := range files {
				if strings.HasSuffix(file, "_test.go") {
					continue
				}
				read++
				for _, fault := range impurities(t, file, nil) {
					t.Error(fault)
				}
			}
			if read == 0 {
				t.Errorf("no files in %s", name)
			}
		})
	}
}

// The test above says nothing if it cannot see what it looks for.
func TestImpuritiesAreSeen(t *testing.T) {
	source := `package impure
		import (
			"crypto/rand"
			dice "math/rand/v2"
			clock "time"
		)
		var _, _ = clock.Now, clock.Second
		func age(then clock.Time) clock.Duration { return clock.Since(then) }
		var _, _ = dice.N[int], rand.Reader`
	want := []string{"impure.go:3: crypto/rand", "impure.go:4: math/rand/v2", "impure.go:7: time.Now", "impure.go:8: time.Since"}
	wantLines(t, want, impurities(t, "impure.go", source))
}

// impurities are the places where a file asks for the time or for chance.
func impurities(t *testing.T, file string, source any) []string {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	note := func(at token.Pos, what string) {
		found = append(found, fmt.Sprintf("%s:%d: %s", filepath.Base(file), set.Position(at).Line, what))
	}
	clock := ""
	for _, imported := range parsed.Imports {
		switch path := strings.Trim(imported.Path.Value, `"`); path {
		case "math/rand", "math/rand/v2", "crypto/rand", "k8s.io/apimachinery/pkg/util/rand", "k8s.io/utils/clock":
			note(imported.Pos(), path)
		case "time":
			if clock = "time"; imported.Name != nil {
				clock = imported.Name.Name
			}
		}
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		selector, isSelector := node.(*ast.SelectorExpr)
		if !isSelector {
			return true
		}
		of, isName := selector.X.(*ast.Ident)
		if isName && clock != "" && of.Name == clock && slices.Contains([]string{"Now", "Since", "Until", "After", "Tick", "NewTimer", "NewTicker", "Sleep"}, selector.Sel.Name) {
			note(selector.Pos(), "time."+selector.Sel.Name)
		}
		// The time of Kubernetes' own types is a clock as well.
		if isName && of.Name == "metav1" && selector.Sel.Name == "Now" {
			note(selector.Pos(), "metav1.Now")
		}
		return true
	})
	return found
}

// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// impureModules connect to something, or run something. No scheduler's module may
// become a dependency either.
var impureModules = []string{
	"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/scheduler-plugins", "volcano.sh", "golang.org/x/crypto/ssh",
}

// impurePackages may not be imported by the engine's own files. Libraries that the
// engine uses for their types, such as k8s.io/apimachinery, import some of them.
var impurePackages = []string{
	"os", "os/exec", "os/signal", "net/http", "io/ioutil", "math/rand", "math/rand/v2", "crypto/rand",
	"k8s.io/apimachinery/pkg/util/rand", "k8s.io/apimachinery/pkg/util/wait", "k8s.io/utils/clock",
}

// pureFunctions are those of package net that only look at their arguments.
var pureFunctions = []string{"ParseIP", "SplitHostPort", "JoinHostPort"}

// The engine decides by what it is given: the same input has the same result.
func TestTheEngineIsPure(t *testing.T) {
	engine := packages(t, "./internal/engine/...", "./"+protocol)
	if len(engine) < 8 {
		t.Fatalf("only %d packages", len(engine))
	}
	for _, one := range engine {
		folder := strings.TrimPrefix(one.ImportPath, module)
		for _, dependency := range one.Deps {
			for _, name := range impureModules {
				if strings.HasPrefix(dependency+"/", name+"/") {
					t.Errorf("%s depends on %s", folder, dependency)
				}
			}
		}
		for _, file := range one.GoFiles {
			for _, fault := range impurities(t, filepath.Join(one.Dir, file), nil) {
				t.Errorf("%s/%s", folder, fault)
			}
		}
	}
}

// The test above proves nothing if it cannot see what it looks for.
func TestImpuritiesAreSeen(t *testing.T) {
	source := `package impure
		import (
			"crypto/rand"
			dice "math/rand/v2"
			clock "time"
			"os"
			metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
		)
		var _, _ = clock.Now, clock.Second
		func age(then clock.Time) clock.Duration { return clock.Since(then) }
		var _, _, _ = dice.N[int], rand.Reader, os.Args
		var _ = metav1.Now()
		var _, _ = net.Dial, net.ParseIP`
	want := []string{
		"impure.go:3: crypto/rand", "impure.go:4: math/rand/v2", "impure.go:6: os", "impure.go:9: time.Now", "impure.go:10: time.Since",
		"impure.go:12: metav1.Now", "impure.go:13: net.Dial",
	}
	if diff := cmp.Diff(want, impurities(t, "impure.go", source)); diff != "" {
		t.Error(diff)
	}
}

// impurities are the lines of a file that use the clock, chance or the machine.
func impurities(t *testing.T, file string, source any) (found []string) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	note := func(at token.Pos, what string) {
		found = append(found, fmt.Sprintf("%s:%d: %s", filepath.Base(file), set.Position(at).Line, what))
	}
	clock := ""
	for _, imported := range parsed.Imports {
		path := strings.Trim(imported.Path.Value, `"`)
		if slices.Contains(impurePackages, path) {
			note(imported.Pos(), path)
		}
		if path == "time" {
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
		if isName && of.Name == "net" && !slices.Contains(pureFunctions, selector.Sel.Name) {
			note(selector.Pos(), "net."+selector.Sel.Name)
		}
		// The time of Kubernetes' own types is a clock as well.
		if isName && of.Name == "metav1" && selector.Sel.Name == "Now" {
			note(selector.Pos(), "metav1.Now")
		}
		return true
	})
	return found
}

// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/server/rest"
)

// Every path and every parameter of the server is in the page about it. The page has
// short names for what many paths begin with.
func TestPathsAreDocumented(t *testing.T) {
	page := read(t, "docs/user-guide/server.md")
	for path, methods := range documentedPaths(t) {
		begin := regexp.MustCompile(`^/api/v1(/namespaces/\{namespace\})?((/history)?(/trainjobs|/mpijobs))?`)
		short := begin.ReplaceAllString(path, "")
		if short != "" && !strings.Contains(page, short+"`") {
			t.Errorf("the page does not name %s", path)
		}
		for method, operation := range methods {
			for _, parameter := range operation.Parameters {
				if !regexp.MustCompile("[`?]"+parameter.Name+"[`=]").MatchString(page) && parameter.In == "query" {
					t.Errorf("the page does not name the parameter %s of %s %s", parameter.Name, method, path)
				}
			}
		}
	}
}

// operation is what the OpenAPI document says of a path and a method.
type operation struct {
	Parameters []struct{ Name, In string }
}

func documentedPaths(t *testing.T) map[string]map[string]operation {
	t.Helper()
	api, err := rest.New(nil, rest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	api.Document().ServeHTTP(answer, httptest.NewRequest("GET", "/openapi.json", nil))
	var document struct {
		Paths map[string]map[string]operation
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Paths) == 0 {
		t.Fatal("the document has no paths")
	}
	return document.Paths
}

// Every flag of the server is in the page of administrators.
func TestServerSettingsAreDocumented(t *testing.T) {
	page := read(t, "docs/admin-guide/server.md")
	flags := regexp.MustCompile(`flags\.\w+\([^"]*"([a-z-]+)"`).FindAllStringSubmatch(read(t, "cmd/server/main.go"), -1)
	if len(flags) == 0 {
		t.Error("cmd/server/main.go has no flags")
	}
	for _, flag := range flags {
		if !strings.Contains(page, "`--"+flag[1]+"`") {
			t.Errorf("the page does not name --%s", flag[1])
		}
	}
}

// read is a file of the repository.
func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

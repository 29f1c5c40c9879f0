// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// Every key of the configuration is in the page about it.
func TestConfigurationIsDocumented(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, "docs/admin-guide/operator.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys("", reflect.TypeFor[config.Config]()) {
		if key == "apiVersion" || key == "kind" {
			continue
		}
		// A row may name several keys of one group by their last part.
		_, last, _ := strings.Cut(key, "maxSlotsPerWorker")
		if !strings.Contains(string(content), "`"+key+"`") && (last == "" || !strings.Contains(string(content), "`"+last+"`")) {
			t.Errorf("the page does not name %s", key)
		}
	}
}

// keys are the names of all values below a struct, with the names above them.
func keys(prefix string, kind reflect.Type) (all []string) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[resource.Quantity]() && field.Type != reflect.TypeFor[metav1.Duration]() {
			all = append(all, keys(prefix+name+".", field.Type)...)
		} else {
			all = append(all, prefix+name)
		}
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0

// Package permissions lists what the installed programs may do, so that every change of
// their permissions is a visible difference in a golden file.
package permissions

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

func TestPermissions(t *testing.T) {
	for _, platform := range []string{"kubernetes", "openshift", "complete"} {
		t.Run(platform, func(t *testing.T) {
			objects := readObjects(t, "../../../config/manifests/"+platform+".yaml")
			goldenfile.Check(t, "testdata/"+platform+".txt", list(t, objects))
		})
	}
}

// object has the fields of roles and of bindings.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Rules    []rbacv1.PolicyRule
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

func readObjects(t *testing.T, file string) (objects []object) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
		var o object
		if err := yaml.Unmarshal(document, &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		objects = append(objects, o)
	}
	return objects
}

// list returns one section for each subject of a binding, for each role that is part of
// another, and for each role that nothing is bound to: administrators bind those.
func list(t *testing.T, objects []object) []byte {
	t.Helper()
	sections, bound := map[string]sets.Set[string]{}, sets.New[string]()
	for _, binding := range objects {
		if !strings.HasSuffix(binding.Kind, "RoleBinding") {
			continue
		}
		role := find(t, objects, binding.RoleRef, binding.Metadata.Namespace)
		bound.Insert(role.Kind + " " + role.Metadata.Name)
		scope := "in all namespaces"
		if binding.Kind == "RoleBinding" {
			scope = "in namespace " + binding.Metadata.Namespace
		}
		for _, subject := range binding.Subjects {
			add(sections, subject.Kind+" "+subject.Name+", "+scope, role.Rules)
		}
	}
	for _, role := range objects {
		name := role.Kind + " " + role.Metadata.Name
		switch parents := aggregatedTo(role); {
		case len(parents) > 0:
			add(sections, name+", part of "+strings.Join(parents, " and "), role.Rules)
		case strings.HasSuffix(role.Kind, "Role") && !bound.Has(name):
			add(sections, name+", bound by administrators", role.Rules)
		}
	}
	return write(sections)
}

// aggregatedTo returns the cluster roles of Kubernetes that a role is part of.
func aggregatedTo(role object) (parents []string) {
	for label := range role.Metadata.Labels {
		if parent, found := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); found {
			parents = append(parents, parent)
		}
	}
	slices.Sort(parents)
	return parents
}

func find(t *testing.T, objects []object, ref rbacv1.RoleRef, namespace string) object {
	t.Helper()
	index := slices.IndexFunc(objects, func(o object) bool {
		return o.Kind == ref.Kind && o.Metadata.Name == ref.Name && (o.Kind == "ClusterRole" || o.Metadata.Namespace == namespace)
	})
	if index < 0 {
		t.Fatalf("a binding refers to %s %s, which is not in the manifests", ref.Kind, ref.Name)
	}
	return objects[index]
}

// add writes one line for each resource; verbs of several rules are on one line.
func add(sections map[string]sets.Set[string], title string, rules []rbacv1.PolicyRule) {
	verbs := map[string]sets.Set[string]{}
	for _, rule := range rules {
		for _, target := range targets(rule) {
			if verbs[target] == nil {
				verbs[target] = sets.New[string]()
			}
			verbs[target].Insert(rule.Verbs...)
		}
	}
	if sections[title] == nil {
		sections[title] = sets.New[string]()
	}
	for target, v := range verbs {
		sections[title].Insert(fmt.Sprintf("%s: %s", target, strings.Join(sets.List(v), ", ")))
	}
}

// targets returns what a rule allows access to: resources with their group, or paths.
func targets(rule rbacv1.PolicyRule) []string {
	names := ""
	if len(rule.ResourceNames) > 0 {
		names = " (" + strings.Join(slices.Sorted(slices.Values(rule.ResourceNames)), ", ") + ")"
	}
	all := slices.Clone(rule.NonResourceURLs)
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			// As kubectl writes them: mpijobs.kubeflow.org/status.
			kind, subresource, hasSubresource := strings.Cut(resource, "/")
			if group != "" {
				kind += "." + group
			}
			if hasSubresource {
				kind += "/" + subresource
			}
			all = append(all, kind+names)
		}
	}
	return all
}

func write(sections map[string]sets.Set[string]) []byte {
	var text bytes.Buffer
	for _, title := range sets.List(sets.KeySet(sections)) {
		fmt.Fprintf(&text, "%s\n", title)
		for _, line := range sets.List(sections[title]) {
			fmt.Fprintf(&text, "  %s\n", line)
		}
		text.WriteString("\n")
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

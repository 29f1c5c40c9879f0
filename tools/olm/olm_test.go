// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
)

const repositoryRoot = "../.."

// chart is what the chart renders for make bundle, but for the digests.
var chart = source{manifests: filepath.Join(repositoryRoot, "config/manifests/olm.yaml"), repository: repositoryRoot}

func newTestBundle(t *testing.T) *bundle {
	t.Helper()
	content, err := chart.read()
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBundle(content, "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// OLM's own validators accept the bundle, and opm's library the catalog.
func TestValidators(t *testing.T) {
	directory := t.TempDir()
	if err := writeFiles(directory, newTestBundle(t).files("registry.example/trireme/bundle:v0.1.0")); err != nil {
		t.Fatal(err)
	}
	loaded, err := manifests.GetBundleFromDir(filepath.Join(directory, "bundle"))
	if err != nil {
		t.Fatal(err)
	}
	validators := append(validation.DefaultBundleValidators, validation.OperatorHubV2Validator, validation.GoodPracticesValidator,
		validation.StandardCategoriesValidator, validation.StandardCapabilitiesValidator)
	for _, result := range validators.Validate(loaded.ObjectsToValidate()...) {
		for _, problem := range result.Errors {
			t.Errorf("%s: %v", result.Name, problem)
		}
		for _, warning := range result.Warnings {
			t.Logf("%s: %v", result.Name, warning)
		}
	}
	catalog, err := declcfg.LoadFS(context.Background(), os.DirFS(filepath.Join(directory, "catalog")))
	if err != nil {
		t.Fatal(err)
	}
	model, err := declcfg.ConvertToModel(*catalog)
	if err != nil {
		t.Fatal(err)
	}
	if model["trireme"] == nil || model["trireme"].Channels[channel].Bundles["trireme.v0.1.0"] == nil {
		t.Errorf("the catalog lacks the bundle: %v", model)
	}
}

// Everything that the chart installs is somewhere, and only once.
func TestNothingIsLost(t *testing.T) {
	b := newTestBundle(t)
	places := map[string]int{}
	for _, list := range [][]object{b.manifests, b.beside} {
		for _, o := range list {
			places[o.kind()+"/"+o.name()]++
		}
	}
	for name := range b.bindServiceAccounts() {
		places[name]++
	}
	for _, o := range b.objects {
		name := o.kind() + "/" + o.name()
		isOperators := slices.Contains([]string{"Secret/trireme-webhook", "Lease/trireme-leader", "ConfigMap/trireme-ca"}, name)
		if want := map[bool]int{false: 1, true: 0}[isOperators || o.isHook()]; places[name] != want {
			t.Errorf("%s is in %d places, want %d", name, places[name], want)
		}
	}
	text := string(b.files("image")["olm-objects.yaml"])
	for _, want := range []string{"kind: ValidatingWebhookConfiguration", "kind: MutatingWebhookConfiguration", "kind: ValidatingAdmissionPolicy", "kind: SecurityContextConstraints", "name: mpi-openmpi-cpu"} {
		if !strings.Contains(text, want) {
			t.Errorf("olm-objects.yaml lacks %s", want)
		}
	}
}

// The service accounts have the permissions of the chart, and no others.
func TestPermissions(t *testing.T) {
	b := newTestBundle(t)
	for account, role := range map[string]string{"trireme-operator": "trireme-operator", "trireme-server": "trireme-server", "trireme-metrics-reader": "trireme-metrics-reader"} {
		var want int
		for _, o := range b.objects {
			if o.kind() == "ClusterRole" && o.name() == role {
				want = len(o["rules"].([]any))
			}
		}
		if b.bound[account] == nil || want == 0 || len(b.bound[account].cluster) != want {
			t.Errorf("%s has other cluster permissions than the %d rules of ClusterRole %s", account, want, role)
		}
	}
	if len(b.bound) != 3 {
		t.Errorf("%d service accounts have permissions, want those of operator, server and the reader of metrics", len(b.bound))
	}
}

func TestVersionIsRequired(t *testing.T) {
	for _, version := range []string{"", "dev", "1.0"} {
		if _, err := newBundle(rendered{}, version); err == nil || !strings.Contains(err.Error(), "--version") {
			t.Errorf("version %q: want an error that names --version, got %v", version, err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReleaseIsChosenByTheEnvironment(t *testing.T) {
	tests := map[string]struct {
		value, want, wantError string
	}{
		"the default":        {want: "v1.36.3"},
		"the default, named": {value: "1.36", want: "v1.36.3"},
		"the oldest":         {value: "1.33", want: "v1.33.5"},
		"the newest":         {value: "1.37", want: "v1.37.0"},
		"one between them":   {value: "1.34", wantError: `the cluster cannot run Kubernetes "1.34"; set TRIREME_KUBERNETES_VERSION to one of 1.33, 1.36, 1.37 (default: 1.36)`},
		"a patch version":    {value: "v1.33.5", wantError: `the cluster cannot run Kubernetes "v1.33.5"; set`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			clean(t)
			t.Setenv(KubernetesVariable, test.value)
			l, err := New(DefaultName, "/src", DefaultNetwork)
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("error %v, want one with %q", err, test.wantError)
				}
				return
			}
			if err != nil || l.Kubernetes.Version != test.want {
				t.Errorf("Kubernetes %s (%v), want %s", l.Kubernetes.Version, err, test.want)
			}
		})
	}
}

// The flags of each release: one that a release does not know keeps it from starting.
func TestGangFlags(t *testing.T) {
	want := map[string][]string{
		"1.33": nil,
		"1.36": {"--feature-gates=GenericWorkload=true,GangScheduling=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true"},
		"1.37": {"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"},
	}
	got := map[string][]string{}
	for _, release := range Releases() {
		got[release.Release] = release.APIServerFlags()
		if !strings.HasPrefix(release.Version, "v1."+release.Minor()+".") {
			t.Errorf("release %s has the version %s and the minor version %s", release.Release, release.Version, release.Minor())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags of kube-apiserver (-want +got):\n%s", diff)
	}
}

func TestDataBelongsToOneRelease(t *testing.T) {
	tests := map[string]struct {
		hasData         bool
		record, release string
		wantError       string
	}{
		"no data":                            {release: "1.33"},
		"data of the same release":           {hasData: true, record: "1.33\n", release: "1.33"},
		"data of another release":            {hasData: true, record: "1.37\n", release: "1.33", wantError: "belongs to Kubernetes 1.37, not 1.33; delete it with `reset`, or set TRIREME_KUBERNETES_VERSION=1.37"},
		"data without a record, the default": {hasData: true, release: "1.36"},
		"data without a record, another one": {hasData: true, release: "1.37", wantError: "belongs to Kubernetes 1.36, not 1.37"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			release, err := FindKubernetes(test.release)
			if err != nil {
				t.Fatal(err)
			}
			l := Layout{Data: t.TempDir(), Kubernetes: release}
			if test.hasData {
				if err := os.Mkdir(l.EtcdData(), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if test.record != "" {
				if err := os.WriteFile(l.ReleaseRecord(), []byte(test.record), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err = l.CheckRelease()
			if test.wantError == "" && err != nil || test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)) {
				t.Errorf("error %v, want %q", err, test.wantError)
			}
		})
	}
}

// Each release has a module, which requires that version. All but the default share
// their main.go.
func TestModulesOfReleases(t *testing.T) {
	components := filepath.Join("..", "..", "components")
	shared := read(t, components, "kubernetes-"+Releases()[1].Release, "main.go")
	for _, release := range Releases() {
		module := "kubernetes"
		if !release.IsDefault() {
			module += "-" + release.Release
		}
		if requirements := read(t, components, module, "go.mod"); !strings.Contains(requirements, "k8s.io/kubernetes "+release.Version+"\n") {
			t.Errorf("module %s does not require Kubernetes %s", module, release.Version)
		}
		if !release.IsDefault() && read(t, components, module, "main.go") != shared {
			t.Errorf("main.go of %s is not that of the other releases", module)
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

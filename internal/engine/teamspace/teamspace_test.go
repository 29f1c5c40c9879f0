// SPDX-License-Identifier: Apache-2.0

package teamspace

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

func complete() Settings {
	return Settings{
		Name:        "vision",
		Quota:       corev1.ResourceList{"requests.cpu": resource.MustParse("64"), "requests.nvidia.com/gpu": resource.MustParse("8")},
		Isolation:   IsolationJob,
		EgressPorts: []int32{443, 9000}, ReportsPort: 7000,
		Admins: []string{"user:alice"}, Editors: []string{"group:vision", "user:system:serviceaccount:ci:runner"}, Viewers: []string{"group:audit"},
		PullSecret: "trireme-system/registry", PodSecurity: "baseline",
	}.WithDefaults()
}

func TestObjects(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "trireme-system", Name: "registry", UID: "1", Labels: map[string]string{"of": "another"}},
		Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")},
	}
	withoutPolicies := Default("vision")
	withoutPolicies.Isolation, withoutPolicies.DefaultRequests = IsolationNone, corev1.ResourceList{}
	files := map[string]bool{}
	for name, tc := range map[string]struct {
		settings Settings
		secret   *corev1.Secret
	}{
		"default":          {settings: Default("vision")},
		"complete":         {settings: complete(), secret: secret},
		"without policies": {settings: withoutPolicies},
	} {
		file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".golden.yaml")
		files[file] = true
		t.Run(name, func(t *testing.T) {
			if err := tc.settings.Validate(); err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			for _, object := range Objects(tc.settings, tc.secret) {
				document, err := yaml.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				text.WriteString("---\n")
				text.Write(document)
			}
			goldenfile.Check(t, file, text.Bytes())
		})
	}
	goldenfile.NoOthers(t, filepath.Join("testdata", "*.golden.yaml"), files)
}

func TestValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"a system namespace":          {func(s *Settings) { s.Name = "kube-system" }, "namespace kube-system belongs to the system; choose a namespace for a team"},
		"OpenShift's":                 {func(s *Settings) { s.Name = "openshift-monitoring" }, "namespace openshift-monitoring belongs to the system; choose a namespace for a team"},
		"the default namespace":       {func(s *Settings) { s.Name = "default" }, "namespace default belongs to the system; choose a namespace for a team"},
		"Trireme's own":               {func(s *Settings) { s.Name = "trireme-system" }, "namespace trireme-system belongs to the system; choose a namespace for a team"},
		"an unknown isolation":        {func(s *Settings) { s.Isolation = "job" }, `isolation must be Namespace, Job or None, not "job"`},
		"an unknown PodSecurity":      {func(s *Settings) { s.PodSecurity = "strict" }, `podSecurity must be restricted, baseline or privileged, not "strict"`},
		"a port that does not exist":  {func(s *Settings) { s.EgressPorts = []int32{0} }, "egressPorts must be between 1 and 65535, not 0"},
		"a negative quota":            {func(s *Settings) { s.Quota = corev1.ResourceList{"pods": resource.MustParse("-1")} }, "quota: pods must be 0 or greater, not -1"},
		"a member without a kind":     {func(s *Settings) { s.Viewers = []string{"alice"} }, `member "alice" must be user:NAME or group:NAME`},
		"a member without a name":     {func(s *Settings) { s.Admins = []string{"group:"} }, `member "group:" must be user:NAME or group:NAME`},
		"a secret without namespace":  {func(s *Settings) { s.PullSecret = "registry" }, `pullSecret must be NAMESPACE/NAME, not "registry"`},
		"a port beyond all":           {func(s *Settings) { s.ReportsPort = 65536 }, "reportsPort must be between 1 and 65535, not 65536"},
		"a secret that is not a name": {func(s *Settings) { s.PullSecret = "a/../b" }, `pullSecret must be NAMESPACE/NAME, not "a/../b"`},
	} {
		t.Run(name, func(t *testing.T) {
			settings := complete()
			tc.change(&settings)
			got := ""
			if err := settings.Validate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What the chart writes and what the command line builds are the same type.
func TestSettingsReadAsYAML(t *testing.T) {
	text := `
name: vision
quota: {requests.cpu: 64, requests.nvidia.com/gpu: "8"}
isolation: Job
egressPorts: [443, 9000]
reportsPort: 7000
admins: [user:alice]
editors: [group:vision, user:system:serviceaccount:ci:runner]
viewers: [group:audit]
pullSecret: trireme-system/registry
podSecurity: baseline
`
	var got Settings
	if err := yaml.UnmarshalStrict([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(complete(), got.WithDefaults()); diff != "" {
		t.Error(diff)
	}
}

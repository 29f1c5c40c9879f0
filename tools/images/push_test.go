// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
	"sigs.k8s.io/yaml"
)

const user, password = "pusher", "correct horse"

// startRegistry starts distribution with TLS and a password.
func startRegistry(t *testing.T) *httptest.Server {
	t.Helper()
	hash := must(bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost))(t)
	users := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(users, fmt.Appendf(nil, "%s:%s\n", user, hash), 0o600); err != nil {
		t.Fatal(err)
	}
	config := &configuration.Configuration{
		Storage: configuration.Storage{"inmemory": nil},
		Auth:    configuration.Auth{"htpasswd": {"realm": "test", "path": users}},
	}
	config.HTTP.Secret = "test"
	logrus.SetOutput(io.Discard)
	config.Catalog.MaxEntries = 100
	server := httptest.NewTLSServer(handlers.NewApp(context.Background(), config))
	t.Cleanup(server.Close)
	return server
}

// logIn writes a Docker configuration with a password for the registry.
func logIn(t *testing.T, host, password string) {
	t.Helper()
	folder := t.TempDir()
	t.Setenv("DOCKER_CONFIG", folder)
	if password == "" {
		return
	}
	credentials := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	content := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, credentials)
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func pushTo(t *testing.T, server *httptest.Server) (settings pushSettings, host string) {
	t.Helper()
	host = strings.TrimPrefix(server.URL, "https://")
	return pushSettings{
		registry: host + "/some/path", layouts: layouts(t), chart: filepath.Join(repository, "charts/trireme/values.yaml"),
		transport: server.Client().Transport,
	}, host
}

func TestPush(t *testing.T) {
	server := startRegistry(t)
	p, host := pushTo(t, server)
	logIn(t, host, password)
	index, _, _ := readLayout(t, filepath.Join(p.layouts, "mpi-agent"))
	digest := must(index.Digest())(t)
	const unsigned = "The images are not signed: set COSIGN_KEY to the file of a private key to sign them.\n"
	for range 2 { // The second push finds everything.
		var out bytes.Buffer
		if err := push(t.Context(), p, &out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(host+"/some/path/mpi-agent:v1.2.3@"+digest.String()+"\n"+unsigned, out.String()); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	}

	options := []remote.Option{remote.WithTransport(server.Client().Transport), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	tagged := must(name.NewTag(host + "/some/path/mpi-agent:v1.2.3"))(t)
	pulled := must(remote.Index(tagged, options...))(t)
	if got := must(pulled.Digest())(t); got != digest {
		t.Errorf("the registry has %s, want %s", got, digest)
	}
	for platform, one := range platforms(t, pulled) {
		checkFiles(t, one, "mpi-agent", strings.TrimPrefix(platform, "linux/"))
		attached := must(remote.Referrers(tagged.Digest(must(one.Digest())(t).String()), options...))(t)
		if manifest := must(attached.IndexManifest())(t); len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != spdxType {
			t.Errorf("%s has the referrers %v, want one SBOM", platform, manifest.Manifests)
		}
	}
	attached := must(remote.Referrers(tagged.Digest(digest.String()), options...))(t)
	if manifest := must(attached.IndexManifest())(t); len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != intotoType {
		t.Errorf("the index has the referrers %v, want one provenance", manifest.Manifests)
	}

	var values map[string]any
	if err := yaml.Unmarshal(must(os.ReadFile(filepath.Join(p.layouts, "values.yaml")))(t), &values); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"images": map[string]any{
		"registry": host + "/some/path", "tag": "v1.2.3", "agent": map[string]any{"digest": digest.String()},
	}}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestPushIsRefused(t *testing.T) {
	server := startRegistry(t)
	tests := map[string]struct {
		password string
		change   func(*pushSettings)
		want     string
	}{
		"wrong password":   {password: "wrong", want: "the registry rejected your credentials for 127.0.0.1"},
		"no credentials":   {want: "requires credentials, and your Docker configuration has none for 127.0.0.1"},
		"another version":  {password: password, change: func(p *pushSettings) { p.version = "v2.0.0" }, want: "run make images VERSION=v2.0.0"},
		"no layouts":       {password: password, change: func(p *pushSettings) { p.layouts = t.TempDir() }, want: "run make images first"},
		"no registry":      {password: password, change: func(p *pushSettings) { p.registry = "" }, want: "such as registry.example/trireme"},
		"no host":          {password: password, change: func(p *pushSettings) { p.registry = "trireme" }, want: "such as registry.example/trireme"},
		"wrong registry":   {password: password, change: func(p *pushSettings) { p.registry = "in valid" }, want: "such as registry.example/trireme"},
		"missing key":      {password: password, change: func(p *pushSettings) { p.key = "missing.pem" }, want: "COSIGN_KEY: open missing.pem"},
		"unknown to chart": {password: password, change: func(p *pushSettings) { p.chart = "testdata/values.yaml" }, want: "testdata/values.yaml has no image with the name mpi-agent"},
	}
	for phrase, test := range tests {
		t.Run(phrase, func(t *testing.T) {
			p, host := pushTo(t, server)
			logIn(t, host, test.password)
			if test.change != nil {
				test.change(&p)
			}
			err := push(t.Context(), p, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestChartHasEveryImage(t *testing.T) {
	keys := must(chartKeys(filepath.Join(repository, "charts/trireme/values.yaml")))(t)
	want := slices.Sorted(slices.Values(append(programNames(), testImage)))
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(keys))); diff != "" {
		t.Errorf("images of the chart (-want +got):\n%s", diff)
	}
}

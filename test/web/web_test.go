// SPDX-License-Identifier: Apache-2.0

// Package web tests the dashboard in a real Chromium, against the real server and real jobs
// on a local cluster of its own. The steps in the browser are in web/browser.
package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

// The server is installed after the page is built, so that it contains the page.
func TestMain(m *testing.M) {
	os.Exit(localcluster.Run(m, "trireme-web", "10.187.0.0/16",
		"command -v chromium || tools/apt-install chromium",
		"make web bin/odh", "bin/cluster up", "make install", "bin/cluster image mpi"))
}

// kubectl runs kubectl and fails the test if kubectl does.
func kubectl(t *testing.T, arguments string) string {
	t.Helper()
	output, err := localcluster.Shell("bin/cluster kubectl " + arguments)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", arguments, err, output)
	}
	return output
}

func TestStaticChecks(t *testing.T) {
	if output, err := localcluster.Shell("make check-web"); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

func TestBrowser(t *testing.T) {
	const namespace = "web-tests"
	// A cluster that is kept may have those of an earlier run, which are deleted in the background.
	kubectl(t, "delete namespace "+namespace+" --ignore-not-found --timeout=180s")
	kubectl(t, "delete clusterrolebinding "+namespace+" --ignore-not-found")
	kubectl(t, "create namespace "+namespace)
	t.Cleanup(func() { kubectl(t, "delete namespace "+namespace+" --wait=false") })
	kubectl(t, "create serviceaccount viewer --namespace "+namespace)
	kubectl(t, "create rolebinding viewer --clusterrole=view --serviceaccount="+namespace+":viewer --namespace "+namespace)
	kubectl(t, "create serviceaccount admin --namespace "+namespace)
	kubectl(t, "create clusterrolebinding "+namespace+" --clusterrole=cluster-admin --serviceaccount="+namespace+":admin")
	t.Cleanup(func() { kubectl(t, "delete clusterrolebinding "+namespace) })

	odh, err := filepath.Abs(filepath.Join(localcluster.Repository, "bin/odh"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command("bash", "-euo", "pipefail", "-c", `eval "$(bin/cluster env)"; exec web/npm run --silent test-browser`)
	command.Dir = localcluster.Repository
	command.Env = append(os.Environ(), "ODH="+odh, "NAMESPACE="+namespace, "IMAGE=trireme.local/openmpi:4",
		"VIEWER="+strings.TrimSpace(kubectl(t, "create token viewer --namespace "+namespace)),
		"ADMIN="+strings.TrimSpace(kubectl(t, "create token admin --namespace "+namespace)))
	output, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// The server that is installed in the cluster serves the page, too.
func TestInstalledServer(t *testing.T) {
	if localcluster.IsKept() {
		t.Skip("the server of the cluster may have been built without the page")
	}
	output, err := localcluster.Shell(`eval "$(bin/cluster env)"
kubectl get configmap trireme-ca --namespace trireme-system -o jsonpath='{.data.ca\.crt}' > bin/web-ca.crt
address=$(kubectl get service trireme-server --namespace trireme-system -o jsonpath='{.spec.clusterIP}')
curl -sSf --retry 30 --retry-delay 1 --retry-connrefused -D - --cacert bin/web-ca.crt --resolve trireme-server.trireme-system.svc:443:$address https://trireme-server.trireme-system.svc/jobs`)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, want := range []string{"script-src 'self'", `<div id="root">`, "/assets/"} {
		if !strings.Contains(output, want) {
			t.Errorf("no %s in\n%s", want, output)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// odh server stands for whoever runs it, and for nobody else.
func TestOdhServer(t *testing.T) {
	cluster := sharedCluster.For(t)
	jane, max := cluster.person(t, "jane"), cluster.person(t, "max")
	user, err := cluster.environment.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	said, log := &deployed.Lines{}, &deployed.Lines{}
	command := exec.Command(odhProgram, "server", "--address", "127.0.0.1:0", "--kubeconfig", kubeconfig, "--namespace", jane.namespace)
	command.Stdout, command.Stderr = said, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill() })
	var line, token, url string
	eventually.Succeeds(t, "odh says how to reach it", func() error {
		found := regexp.MustCompile(`echo 'Authorization: Bearer (\w+)' \| curl -H @- (http://127\.0\.0\.1:\d+)/\S+`).FindStringSubmatch(said.String())
		if found == nil {
			return os.ErrNotExist
		}
		line, token, url = found[0], found[1], found[2]
		return nil
	})
	if output, err := exec.Command("bash", "-c", strings.Replace(line, "curl ", "curl --silent --fail ", 1)).CombinedOutput(); err != nil || !strings.Contains(string(output), `"items":[]`) {
		t.Errorf("the line that odh shows does not work: %v\n%s", err, output)
	}
	jobs := url + "/api/v1/namespaces/" + jane.namespace + "/mpijobs"
	for name, test := range map[string]struct {
		url, token string
		headers    []string
		code       int
	}{
		"whoever runs it":              {url: jobs, token: token, code: 200},
		"nobody":                       {url: jobs, code: 401},
		"a token of nobody's":          {url: jobs, token: "abc", code: 401},
		"somebody with their own":      {url: jobs, token: jane.token, code: 200},
		"somebody across the border":   {url: jobs, token: max.token, code: 403},
		"all namespaces, by an admin":  {url: url + "/api/v1/mpijobs", token: token, code: 200},
		"a proxy, which it never has":  {url: jobs, headers: []string{"X-Forwarded-User", "admin"}, code: 401},
		"a token in the address alone": {url: jobs + "?token=" + token, code: 401},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ask(t, http.MethodGet, test.url, test.token, nil, test.headers...); got.code != test.code {
				t.Errorf("%d %s", got.code, got.body)
			}
		})
	}
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("odh ended with %v:\n%s", err, log)
		}
	case <-time.After(time.Minute):
		t.Error("odh does not end")
	}
}

func TestOdhServerRefusesToBeReadByOthers(t *testing.T) {
	for address, want := range map[string]string{"0.0.0.0:8090": "others can read the tokens", ":8090": "others can read the tokens", "8090": "a host and a port"} {
		t.Run(address, func(t *testing.T) {
			output, err := exec.Command(odhProgram, "server", "--address", address).CombinedOutput()
			if err == nil || !strings.Contains(string(output), want) {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

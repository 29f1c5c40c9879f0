// SPDX-License-Identifier: Apache-2.0

package initializer

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	asProgram        = "TRIREME_TEST_AS_PROGRAM"
	countAuthorities = "count authorities"
)

// TestMain runs the program itself if a test starts the test binary for that.
func TestMain(m *testing.M) {
	switch os.Getenv(asProgram) {
	case "":
		os.Exit(m.Run())
	case countAuthorities:
		pool, err := x509.SystemCertPool()
		if err != nil || pool.Equal(x509.NewCertPool()) {
			fmt.Print("no")
		} else {
			fmt.Print("some")
		}
		os.Exit(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	os.Exit(Main(ctx, os.Args[1:], os.Getenv, os.Stderr))
}

func TestCommandLines(t *testing.T) {
	cases := map[string]struct {
		arguments []string
		want      string
	}{
		"nothing":            {nil, "usage: initializer fetch --kind dataset|model URI DIRECTORY"},
		"another word":       {[]string{"get"}, "usage: initializer fetch --kind dataset|model URI DIRECTORY"},
		"no kind":            {[]string{"fetch", "s3://b/p", "/d"}, "--kind must be dataset or model"},
		"another kind":       {[]string{"fetch", "--kind", "code", "s3://b/p", "/d"}, "--kind must be dataset or model"},
		"no directory":       {[]string{"fetch", "--kind", "model", "s3://b/p"}, "exactly one URI and one directory are required: initializer fetch --kind model URI DIRECTORY"},
		"an empty directory": {[]string{"fetch", "--kind", "model", "s3://b/p", ""}, "exactly one URI and one directory are required: initializer fetch --kind model URI DIRECTORY"},
		"too much":           {[]string{"fetch", "--kind", "model", "s3://b/p", "/d", "x"}, "exactly one URI and one directory are required: initializer fetch --kind model URI DIRECTORY"},
		"an unknown flag":    {[]string{"fetch", "--speed", "9"}, "flag provided but not defined: -speed"},
		"none at once":       {[]string{"fetch", "--kind", "model", "--parallel", "0", "s3://b/p", "/d"}, "--parallel must be between 1 and 64"},
		"another scheme":     {[]string{"fetch", "--kind", "model", "http://host/x", "/d"}, `the URI "http://host/x" must be s3://bucket/path, hf://owner/name[@revision] or pvc://claim/path`},
		"a password":         {[]string{"fetch", "--kind", "model", "s3://key:hunter2@bucket/x", "/d"}, "the URI must not contain credentials; put them into a Secret and name it in secretRef"},
		"a claim from where": {[]string{"fetch", "--kind", "model", "pvc://claim/x", "/d"}, "pvc://claim needs --from with the mount path of the PVC"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := newRunner(t, nil).run(tc.arguments...)
			if got.code != exitUsage || got.message != tc.want || !strings.Contains(got.output, tc.want) {
				t.Errorf("exit code %d\n%s\nwant\n%s", got.code, got.message, tc.want)
			}
		})
	}
	for _, help := range [][]string{{"--help"}, {"fetch", "-h"}} {
		if got := newRunner(t, nil).run(help...); got.code != 0 || got.output != usageText || got.message != "" {
			t.Errorf("%q: exit code %d\n%s", help, got.code, got.output)
		}
	}
}

// SIGTERM stops it immediately, and the next start continues.
func TestSIGTERM(t *testing.T) {
	content := random(2 << 20)
	server := newS3Server(t, map[string]string{"set/a": content, "set/b": "b"})
	stalled := make(chan struct{})
	server.spoil = func(key string, try int, spoiled *spoiled) {
		if key == "set/a" && try == 0 {
			spoiled.stallAfter = 1 << 20
			close(stalled)
		}
	}
	runner := newRunner(t, server.environment())
	log := filepath.Join(t.TempDir(), "log")
	start := func() (*exec.Cmd, *lockedBuffer) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		program := exec.Command(self, "fetch", "--kind", "dataset", "s3://data/set", runner.directory)
		program.Env = []string{asProgram + "=yes", terminationLogVariable + "=" + log}
		for name, value := range runner.environment {
			program.Env = append(program.Env, name+"="+value)
		}
		output := &lockedBuffer{}
		program.Stderr = output
		if err := program.Start(); err != nil {
			t.Fatal(err)
		}
		return program, output
	}
	program, output := start()
	<-stalled
	// What was sent before the stall is kept.
	kept := func() int64 {
		for _, part := range runner.parts() {
			if info, err := os.Stat(part); err == nil {
				return info.Size()
			}
		}
		return 0
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && kept() < 1<<20; {
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	err := program.Wait()
	if code := program.ProcessState.ExitCode(); code != 143 {
		t.Fatalf("exit code %d, %v:\n%s", code, err, output)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s to end", took)
	}
	message, err := os.ReadFile(log)
	if want := "fetching the dataset s3://data/set was interrupted; completed files are kept, and the next start continues from them"; err != nil || string(message) != want {
		t.Errorf("message %q, %v", message, err)
	}
	if len(runner.parts()) != 1 || runner.complete() {
		t.Fatalf("parts %v, complete %t", runner.parts(), runner.complete())
	}
	server.asked()
	server.mutex.Lock()
	server.sent = 0
	server.mutex.Unlock()
	program, output = start()
	if err := program.Wait(); err != nil {
		t.Fatalf("%v:\n%s", err, output)
	}
	if runner.files()["a"] != content || runner.files()["b"] != "b" {
		t.Error("the files are not the objects")
	}
	if server.sent > 3<<19 {
		t.Errorf("%d bytes were sent again", server.sent)
	}
}

func TestProgressLines(t *testing.T) {
	if every := defaultTiming().report; every != 5*time.Second {
		t.Errorf("a line every %s", every)
	}
	server := newS3Server(t, map[string]string{"set/a": random(1 << 20), "set/b": "b"})
	server.spoil = func(key string, try int, spoiled *spoiled) {
		if key == "set/a" && try == 0 {
			spoiled.stallAfter = 1 << 19
		}
	}
	runner := newRunner(t, server.environment())
	runner.timing.stall, runner.timing.report = 3*time.Second, 100*time.Millisecond
	began := time.Now()
	output := runner.fetched("s3://data/set")
	most := int(time.Since(began)/runner.timing.report) + 1
	lines := strings.Count(output, " of 2 files, ")
	if lines < 2 || lines > most {
		t.Errorf("%d lines of progress, want between 2 and %d:\n%s", lines, most, output)
	}
	if want := "1 of 2 files, 512.0 KiB of 1.0 MiB, "; !strings.Contains(output, want) {
		t.Errorf("no %q in\n%s", want, output)
	}
}

// Many failures at the same time must not write many lines.
func TestNoticesAreLimited(t *testing.T) {
	objects := map[string]string{}
	for _, name := range strings.Split("abcdefghij", "") {
		objects["set/"+name] = name
	}
	server := newS3Server(t, objects)
	server.before = func(writer http.ResponseWriter, request *http.Request) bool {
		if strings.HasPrefix(request.URL.Path, "/data/set/") {
			s3Error(writer, http.StatusInternalServerError, "InternalError", "")
			return true
		}
		return false
	}
	runner := newRunner(t, server.environment())
	runner.timing.maxIdle = 500 * time.Millisecond
	got := runner.fetch("s3://data/set")
	if lines := strings.Count(got.output, "retrying"); got.code != exitFailure || lines != 1 {
		t.Errorf("exit code %d, %d lines:\n%s", got.code, lines, got.output)
	}
}

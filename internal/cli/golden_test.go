// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/trireme-mpi/trireme/internal/testing/goldenfile"
)

// now is the time of every golden test.
var now = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

// ago is a moment before now.
func ago(seconds int) metav1.Time {
	return metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))
}

// Terminals of the tests.
var (
	noTerminal = terminal{}
	narrow     = terminal{width: 60}
	wide       = terminal{width: 140}
	colourful  = terminal{width: 100, colour: true}
)

// session is a command line with a fake cluster of given objects.
type session struct {
	terminal terminal
	stdin    string
	objects  []client.Object
	// answers, if set, intercepts requests to the cluster.
	answers func(client.WithWatch) client.WithWatch
	// server plays Trireme's server.
	server http.RoundTripper
}

// run runs a command line and returns its output and exit code.
func (s session) run(t *testing.T, line string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	env := newEnvironment(genericiooptions.IOStreams{In: strings.NewReader(s.stdin), Out: &out, ErrOut: &errOut})
	env.clock, env.terminal = clocktesting.NewFakePassiveClock(now), s.terminal
	env.cluster = fake.NewClientBuilder().WithScheme(scheme()).WithObjects(s.objects...).WithIndex(eventKind.object, eventKind.field, eventKind.of).Build()
	env.server = s.server
	if s.answers != nil {
		env.cluster = s.answers(env.cluster)
	}
	// Do not use the kubeconfig of the machine.
	t.Setenv(serverVariable, "")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	code := run(t.Context(), env, split(line))
	return fmt.Sprintf("$ odh %s\n%s--- stderr\n%s--- exit code %d\n", line, out.String(), errOut.String(), code)
}

// split splits a line as a shell does, as far as the tests need it.
func split(line string) []string {
	words := []string{}
	quoted := false
	for _, word := range strings.FieldsFunc(line, func(letter rune) bool {
		if letter == '\'' {
			quoted = !quoted
		}
		return letter == ' ' && !quoted
	}) {
		words = append(words, strings.ReplaceAll(word, "'", ""))
	}
	return words
}

// checkGolden compares the output of commands with golden files.
func checkGolden(t *testing.T, folder string, cases map[string]struct {
	session
	line string
}) {
	t.Helper()
	files := map[string]bool{}
	for name, tc := range cases {
		file := filepath.Join("testdata", folder, strings.ReplaceAll(name, " ", "-")+".golden.txt")
		files[file] = true
		t.Run(name, func(t *testing.T) { goldenfile.Check(t, file, []byte(tc.run(t, tc.line))) })
	}
	goldenfile.NoOthers(t, filepath.Join("testdata", folder, "*.golden.txt"), files)
}

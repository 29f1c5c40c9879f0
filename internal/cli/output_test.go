// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// full is a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A failed write is an error of every command.
func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, line := range []string{"version", "trainjob get", "trainjob get -o yaml", "trainjob describe digits", "trainjob delete digits", ""} {
		t.Run(line, func(t *testing.T) {
			var talk bytes.Buffer
			env := newEnvironment(genericiooptions.IOStreams{In: strings.NewReader(""), Out: full{}, ErrOut: &talk})
			env.cluster = fake.NewClientBuilder().WithScheme(scheme()).WithObjects(someJobs()...).WithIndex(eventKind.object, eventKind.field, eventKind.of).Build()
			t.Setenv("KUBECONFIG", "none")
			code := run(t.Context(), env, split(line))
			if want := "Error: cannot write the output\nReason: Output\nDetails: no space left on device\n"; code != exitError || !strings.HasPrefix(talk.String(), want) {
				t.Errorf("exit code %d\n%s", code, talk.String())
			}
		})
	}
}

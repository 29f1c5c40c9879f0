// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/kube/joblog"
)

// hostile clears the screen, sets the window's title and returns to the line's
// start, with control characters of seven and of eight bits.
const hostile = "\x1b[2Jall is \x1b]0;owned\x07 well\rno\u009b1m\x7f"

// hostileObjects are a job with escape sequences in all its texts.
func hostileObjects() []client.Object {
	return []client.Object{
		mpiJobNamed("solve", failed, func(mpiJob *v2beta1.MPIJob) {
			mpiJob.Status.FailureMessage = hostile
			mpiJob.Status.LauncherPodStatus.Reason, mpiJob.Status.LauncherPodStatus.Node = hostile, hostile
			mpiJob.Labels = map[string]string{"team": hostile}
		}),
		trainJobNamed("later", queued, func(trainJob *v2alpha1.TrainJob) { trainJob.Status.Conditions[0].Message = hostile }),
		eventOf("MPIJob", "solve", "Failed", hostile, 20),
	}
}

func TestControlCharactersAreHarmless(t *testing.T) {
	for _, line := range []string{
		"mpijob describe solve", "mpijob get", "mpijob get -o wide", "mpijob get -L team", "mpijob get solve -o jsonpath={.status.failureMessage}",
		"mpijob get -o json", "mpijob get -o yaml", "diagnose solve", "mpijob wait solve", "training list", "trainjob describe later", "mpijob logs solve", "report",
	} {
		for name, terminal := range map[string]terminal{"file": noTerminal, "terminal": wide, "colours": colourful} {
			t.Run(line+" to a "+name, func(t *testing.T) {
				shown := session{terminal: terminal, objects: hostileObjects()}.run(t, line)
				for _, sequence := range sequences {
					if terminal.colour {
						shown = strings.ReplaceAll(shown, sequence, "")
					}
				}
				if at := strings.IndexAny(shown, "\x1b\x07\r\u009b\x7f"); at >= 0 {
					t.Errorf("a control character is printed:\n%q", shown[max(at-40, 0):min(at+40, len(shown))])
				}
			})
		}
	}
}

func TestEscapeControl(t *testing.T) {
	tests := map[string]struct {
		pieces []string
		want   string
	}{
		"plain":                    {[]string{"épopée\t100 %\n"}, "épopée\t100 %\n"},
		"escape":                   {[]string{"\x1b[2J"}, "^[[2J"},
		"carriage return":          {[]string{"12 %\r100 %\r\n"}, `12 %\r100 %\r` + "\n"},
		"bell and delete":          {[]string{"\x07\x7f"}, `^G\u007f`},
		"eight bits":               {[]string{"\u009b2J\x9b2J"}, `\u009b2J\x9b2J`},
		"colours of the job":       {[]string{"\x1b[31mred\x1b[0m"}, "^[[31mred^[[0m"},
		"our own colours":          {[]string{terminal{colour: true}.paint(red, "red")}, "\x1b[31mred\x1b[0m"},
		"a character in pieces":    {[]string{"\xe2", "\x82", "\xac\n"}, "€\n"},
		"a character without end":  {[]string{"a\xe2\x9b"}, "a\uFFFD"},
		"hidden behind a fragment": {[]string{"\xe2", "\x1b[2J"}, "\xe2^[[2J"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			to := &output{to: &out}
			for _, piece := range test.pieces {
				if written, err := to.Write([]byte(piece)); written != len(piece) || err != nil {
					t.Fatalf("%d bytes written, %v", written, err)
				}
			}
			if err := to.failure(); err != nil || out.String() != test.want {
				t.Errorf("%q, %v; want %q", out.String(), err, test.want)
			}
		})
	}
}

// Control characters in logs are escaped on terminals only.
func TestLogsOfATerminal(t *testing.T) {
	const text = "\x1b[1mepoch\x1b[0m 1\r\xff\x9b\xe2"
	for name, test := range map[string]struct {
		terminal
		want string
	}{
		"file":     {noTerminal, text + "\n"},
		"terminal": {narrow, `^[[1mepoch^[[0m 1\r` + "\xff" + `\x9b` + "\xe2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			env := newEnvironment(genericiooptions.IOStreams{Out: &out, ErrOut: &out})
			env.terminal = test.terminal
			printer := newLogPrinter(env.logs(), test.terminal, false, false)
			if err := printer.print(joblog.Line{Text: text}, true); err != nil || out.String() != test.want {
				t.Errorf("logs: %q, %v; want %q", out.String(), err, test.want)
			}
			out.Reset()
			(&liveView{to: env.ErrOut, out: env.logs(), terminal: test.terminal}).printLine(joblog.Line{Text: text})
			if out.String() != test.want {
				t.Errorf("follow: %q, want %q", out.String(), test.want)
			}
		})
	}
}

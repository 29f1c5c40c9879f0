// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubernetes/cmd/kubelet/app"
)

func kubeletCommand() *cobra.Command { return app.NewKubeletCommand(context.Background()) }

// kubectl sets the verbosity before it builds its commands, because building them
// already logs (plugins, kuberc).
func kubectl() {
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

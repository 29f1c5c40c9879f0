package cli

import (
	_ "github.com/spf13/cobra"
	_ "golang.org/x/term"
	_ "golang.org/x/sync/errgroup"
	_ "k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/cli-runtime/pkg/printers"
	_ "k8s.io/cli-runtime/pkg/resource"
	_ "k8s.io/kubectl/pkg/cmd/get"
	_ "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	_ "k8s.io/client-go/kubernetes/typed/core/v1"
)

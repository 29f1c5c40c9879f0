// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/charts"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/teamspace"
	"github.com/trireme-mpi/trireme/internal/operator/setup"
)

// setupActions are what the chart's Jobs run, as operator setup ACTION.
const setupActions = "crds, mpijobs, runtimes, namespaces, uninstall, snapshots"

func runSetup() error {
	flags := flag.NewFlagSet("operator setup ACTION, one of "+setupActions, flag.ExitOnError)
	namespaces := flags.String("namespaces", "/etc/trireme/namespaces/namespaces.yaml", "file with the settings of namespaces")
	folder := flags.String("runtimes", "/etc/trireme/runtimes", "folder with the manifests of runtimes")
	manage := flags.String("manage", string(job.ShareAll), "which MPIJobs Trireme runs: All, New or Named")
	refuse := flags.String("refuse-jobs-of-mpi-operator", "", "fail before or after the CRDs are updated if jobs that mpi-operator has started are not finished")
	timeout := flags.Duration("timeout", 5*time.Minute, "how long to retry while the operator does not answer")
	if len(os.Args) < 3 {
		flags.Usage()
		return fmt.Errorf("name one of: %s", setupActions)
	}
	if err := flags.Parse(os.Args[3:]); err != nil {
		return err
	}
	connection, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("load the cluster configuration: %w", err)
	}
	cluster, err := client.New(connection, client.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctrl.SetupSignalHandler(), *timeout)
	defer cancel()
	work := setup.Setup{Client: cluster, Output: os.Stdout, Pause: time.Second, Manage: job.Share(*manage)}
	switch action := os.Args[2]; action {
	case "mpijobs":
		return work.RefuseJobsOfMPIOperator(ctx)
	case "crds":
		if *refuse == "before" {
			if err := work.RefuseJobsOfMPIOperator(ctx); err != nil {
				return err
			}
		}
		if err := work.UpdateCRDs(ctx, charts.CRDs()); err != nil || *refuse != "after" {
			return err
		}
		return work.RefuseJobsOfMPIOperator(ctx)
	case "namespaces":
		settings, err := readNamespaces(*namespaces)
		if err != nil {
			return err
		}
		return work.PrepareNamespaces(ctx, settings)
	case "runtimes", "uninstall":
		runtimes, err := readManifests(*folder)
		if err != nil {
			return err
		}
		if action == "runtimes" {
			return work.ApplyRuntimes(ctx, runtimes)
		}
		return work.Uninstall(ctx, runtimes)
	case "snapshots":
		return work.DeleteSnapshots(ctx)
	default:
		return fmt.Errorf("unknown action %q: name one of %s", action, setupActions)
	}
}

// readManifests reads the YAML files of a folder, one document each.
func readManifests(folder string) (documents [][]byte, err error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		documents = append(documents, content)
	}
	return documents, nil
}

// readNamespaces reads the chart's value namespaces.
func readNamespaces(file string) (settings []teamspace.Settings, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(content, &settings); err != nil {
		return nil, fmt.Errorf("read namespaces from %s: %w", file, err)
	}
	return settings, nil
}

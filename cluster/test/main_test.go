// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package test proves the local cluster by using it: a cluster of its own, on
// another network than a developer's, brought up once for all tests here.
package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	clusterName = "trireme-test"
	network     = "10.198.0.0/16"
	fakeNodes   = 8
	gpusPerNode = 8
)

// testCluster is the cluster of this test run, and how to talk to it.
type testCluster struct {
	tool      string
	directory string
	config    *rest.Config
	client    kubernetes.Interface
	dynamic   dynamic.Interface
}

// cluster is set by TestMain before any test runs and not changed after.
var cluster *testCluster

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("the cluster tests need root, for namespaces and control groups")
		os.Exit(1)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster tests:", err)
		code = 1
	}
	os.Exit(code)
}

// run leaves nothing behind, whatever the tests did.
func run(m *testing.M) (code int, err error) {
	directory, err := os.MkdirTemp("", "trireme-cluster-test-")
	if err != nil {
		return 1, err
	}
	// One of the tests calls the tool as somebody else.
	if err := os.Chmod(directory, 0o711); err != nil {
		return 1, err
	}
	cluster = &testCluster{tool: filepath.Join(directory, "cluster"), directory: directory}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", cluster.tool, "../cmd/cluster")
	if output, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the tool: %w\n%s", err, output)
	}
	defer func() {
		_, downErr := cluster.run(context.Background(), "reset", "--images")
		err = errors.Join(err, downErr, os.RemoveAll(directory))
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 35*time.Minute)
	defer cancel()
	for _, arguments := range [][]string{
		{"reset", "--images"},
		{"up", "--fake-nodes", fmt.Sprint(fakeNodes), "--fake-node-gpus", fmt.Sprint(gpusPerNode)},
		{"image", "mpi"},
		{"registry", "up"},
	} {
		fmt.Printf("cluster %s\n", strings.Join(arguments, " "))
		if output, err := cluster.run(ctx, arguments...); err != nil {
			return 1, fmt.Errorf("%w\n%s", err, output)
		}
	}
	if err := cluster.connect(); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// command is the tool as a person calls it, on the tests' own cluster.
func (c *testCluster) command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, c.tool, arguments...)
	command.Env = append(os.Environ(),
		"TRIREME_CLUSTER_NAME="+clusterName,
		"TRIREME_CLUSTER_NETWORK="+network,
		"TRIREME_CLUSTER_DATA="+c.data(),
		"TRIREME_CLUSTER_RUN=", // a developer's would be that of the developer's cluster
	)
	return command
}

// data is the same every time, so that a run cleans up after one that was
// killed.
func (c *testCluster) data() string { return "/var/lib/" + clusterName + "-cluster" }

// run gives everything that the tool printed.
func (c *testCluster) run(ctx context.Context, arguments ...string) (string, error) {
	var output bytes.Buffer
	command := c.command(ctx, arguments...)
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("cluster %s: %w", strings.Join(arguments, " "), err)
	}
	return output.String(), nil
}

// must runs the tool and ends the test if it fails.
func (c *testCluster) must(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := c.run(t.Context(), arguments...)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return output
}

func (c *testCluster) connect() (err error) {
	c.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(c.data(), "admin.kubeconfig"))
	if err != nil {
		return err
	}
	c.config.QPS, c.config.Burst = 200, 400
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	c.dynamic, err = dynamic.NewForConfig(c.config)
	return err
}

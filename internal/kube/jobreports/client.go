// SPDX-License-Identifier: Apache-2.0

// Package jobreports reads from the leading operator what running jobs have reported to it.
package jobreports

import (
	"context"
	"fmt"
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
	"github.com/trireme-mpi/trireme/internal/kube/component"
)

const (
	timeout = 10 * time.Second
	// maxResponse is more than the largest report of a job.
	maxResponse = 2 * protocol.MaxActivityBytes
)

// Client reads with the permissions of its own process. Its caller must have checked that
// the user may get the job.
type Client struct{ operator *component.Client }

// New returns a client for the address of the operator's port for reports.
func New(address, directory string) (*Client, error) {
	operator, err := component.New("the operator's port for reports", address, "https://trireme-reports.trireme-system.svc:9444", directory)
	return &Client{operator}, err
}

// Ranks returns all ranks of a job.
func (c *Client) Ranks(ctx context.Context, kind job.Kind, namespace, name string) (*reports.JobRanks, error) {
	return read[reports.JobRanks](ctx, c, reports.ReadPath(kind, namespace, name, reports.PartRanks))
}

// Curves returns the metrics of a job over time.
func (c *Client) Curves(ctx context.Context, kind job.Kind, namespace, name string) (*reports.JobCurves, error) {
	return read[reports.JobCurves](ctx, c, reports.ReadPath(kind, namespace, name, reports.PartCurves))
}

func read[T any](ctx context.Context, c *Client, path string) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := component.Read[T](ctx, c.operator, path, maxResponse)
	if err != nil {
		return nil, fmt.Errorf("the reports of the job: %w", err)
	}
	return found, nil
}

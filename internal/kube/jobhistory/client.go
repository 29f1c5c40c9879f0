// SPDX-License-Identifier: Apache-2.0

// Package jobhistory reads the records of finished jobs from the component that keeps them,
// for the server.
package jobhistory

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"

	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/component"
)

const (
	// maxBody is more than the largest record: an object of a cluster has at most 1.5 MiB.
	maxBody = 16 << 20
	// maxLine is more than the longest line of a log, escaped.
	maxLine = 1 << 20
	// maxLog is more than the largest log.
	maxLog = 64 << 20
)

// Client reads with the permissions of its own process. Its caller must have checked what
// the user may read.
type Client struct{ history *component.Client }

// New returns a client for the address of the history.
func New(address, directory string) (*Client, error) {
	history, err := component.New("the history", address, "https://trireme-history.trireme-system.svc:9446", directory)
	return &Client{history}, err
}

// List returns the newest records of a namespace.
func (c *Client) List(ctx context.Context, kind job.Kind, namespace string, limit int) (*history.RecordList, error) {
	return component.Read[history.RecordList](ctx, c.history, history.APIPath(kind, namespace)+"?limit="+strconv.Itoa(limit), maxBody)
}

// Record returns a record by the name or the UID of its job.
func (c *Client) Record(ctx context.Context, kind job.Kind, namespace, name string) (*history.Record, error) {
	return component.Read[history.Record](ctx, c.history, history.APIPath(kind, namespace, name), maxBody)
}

// Delete deletes a record.
func (c *Client) Delete(ctx context.Context, kind job.Kind, namespace, name string) error {
	body, err := c.history.Open(ctx, http.MethodDelete, history.APIPath(kind, namespace, name))
	if err != nil {
		return err
	}
	return body.Close()
}

// Log returns the lines of a record, of one rank or of all. It has read all of them when it
// returns: a slow user of the server must not occupy the component. An error of a line is
// the last element.
func (c *Client) Log(ctx context.Context, kind job.Kind, namespace, name string, rank *int) (iter.Seq2[history.Line, error], error) {
	path := history.APIPath(kind, namespace, name, "logs")
	if rank != nil {
		path += "?rank=" + strconv.Itoa(*rank)
	}
	body, err := c.history.Open(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, maxLog))
	if err != nil {
		return nil, fmt.Errorf("read the log from the history: %w", err)
	}
	if len(content) == maxLog {
		return nil, fmt.Errorf("the log in the history has more than %d MiB", maxLog>>20)
	}
	return func(yield func(history.Line, error) bool) {
		scanner := bufio.NewScanner(bytes.NewReader(content))
		scanner.Buffer(nil, maxLine)
		for scanner.Scan() {
			var line history.Line
			err := json.Unmarshal(scanner.Bytes(), &line)
			if !yield(line, err) || err != nil {
				return
			}
		}
		if err := scanner.Err(); err != nil {
			yield(history.Line{}, fmt.Errorf("read the log from the history: %w", err))
		}
	}, nil
}

// SPDX-License-Identifier: Apache-2.0

// Package jobreports reads from the leading operator what running jobs have reported to it.
package jobreports

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/reports"
)

const (
	timeout = 10 * time.Second
	// maxResponse is more than the largest report of a job.
	maxResponse = 2 * protocol.MaxActivityBytes
)

// Client reads with the permissions of its own process. Its caller must have checked that
// the user may get the job.
type Client struct {
	address string
	// directory has the token and the CA, which are read for each call: both are renewed.
	directory string

	mutex  sync.Mutex
	ca     []byte
	client *http.Client
}

// New returns a client for an address such as https://trireme-reports.trireme-system.svc:9444.
func New(address, directory string) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, fmt.Errorf("%q is not a valid address of the operator's port for reports: use one like https://trireme-reports.trireme-system.svc:9444", address)
	}
	return &Client{address: strings.TrimSuffix(address, "/"), directory: directory}, nil
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
	token, err := os.ReadFile(filepath.Join(c.directory, protocol.StatusToken))
	if err != nil {
		return nil, fmt.Errorf("read the token for the operator: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client, err := c.connection()
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the reports of the job from the operator: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxResponse))
	if err != nil {
		return nil, fmt.Errorf("read the reports of the job from the operator: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		var status metav1.Status
		_ = json.Unmarshal(body, &status)
		return nil, fmt.Errorf("read the reports of the job from the operator: %s: %s", response.Status, status.Message)
	}
	var found T
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, fmt.Errorf("read the reports of the job from the operator: %w", err)
	}
	return &found, nil
}

// connection returns a client that trusts the CA in the directory.
func (c *Client) connection() (*http.Client, error) {
	ca, err := os.ReadFile(filepath.Join(c.directory, protocol.StatusCA))
	if err != nil {
		return nil, fmt.Errorf("read the operator's CA: %w", err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.client != nil && bytes.Equal(c.ca, ca) {
		return c.client, nil
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read the operator's CA: %s has no certificate in PEM", filepath.Join(c.directory, protocol.StatusCA))
	}
	c.ca = ca
	// No connection stays open: another replica may become the leader.
	c.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}}
	return c.client, nil
}

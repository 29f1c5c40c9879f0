// SPDX-License-Identifier: Apache-2.0

// Package jobhistory reads the records of finished jobs from the component that keeps them,
// for the server.
package jobhistory

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
	"github.com/trireme-mpi/trireme/internal/engine/history"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const (
	// headerTimeout is how long the component may take before it answers.
	headerTimeout = 20 * time.Second
	// maxBody is more than the largest record: an object of a cluster has at most 1.5 MiB.
	maxBody = 16 << 20
	// maxLine is more than the longest line of a log, escaped.
	maxLine = 1 << 20
	// maxLog is more than the largest log.
	maxLog = 64 << 20
)

// Client reads with the permissions of its own process. Its caller must have checked what
// the user may read.
type Client struct {
	address string
	// directory has the token and the CA, which are read for each call: both are renewed.
	directory string

	mutex  sync.Mutex
	ca     []byte
	client *http.Client
}

// New returns a client for an address such as https://trireme-history.trireme-system.svc:9446.
func New(address, directory string) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, fmt.Errorf("%q is not a valid address of the history: use one like https://trireme-history.trireme-system.svc:9446", address)
	}
	return &Client{address: strings.TrimSuffix(address, "/"), directory: directory}, nil
}

// List returns the newest records of a namespace.
func (c *Client) List(ctx context.Context, kind job.Kind, namespace string, limit int) (*history.RecordList, error) {
	return read[history.RecordList](ctx, c, history.APIPath(kind, namespace)+"?limit="+strconv.Itoa(limit))
}

// Record returns a record by the name or the UID of its job.
func (c *Client) Record(ctx context.Context, kind job.Kind, namespace, name string) (*history.Record, error) {
	return read[history.Record](ctx, c, history.APIPath(kind, namespace, name))
}

// Delete deletes a record.
func (c *Client) Delete(ctx context.Context, kind job.Kind, namespace, name string) error {
	body, err := c.open(ctx, http.MethodDelete, history.APIPath(kind, namespace, name))
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
	body, err := c.open(ctx, http.MethodGet, path)
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

func read[T any](ctx context.Context, c *Client, path string) (*T, error) {
	body, err := c.open(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var found T
	if err := json.NewDecoder(io.LimitReader(body, maxBody)).Decode(&found); err != nil {
		return nil, fmt.Errorf("read from the history: %w", err)
	}
	return &found, nil
}

// open sends a request, and returns the body of a successful answer. Other answers are
// errors of the API server's type.
func (c *Client) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	token, err := os.ReadFile(filepath.Join(c.directory, protocol.StatusToken))
	if err != nil {
		return nil, fmt.Errorf("read the token for the history: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.address+path, http.NoBody)
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
		return nil, fmt.Errorf("read from the history: %w", err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, errorOf(response)
}

func errorOf(response *http.Response) error {
	var status metav1.Status
	body, err := io.ReadAll(io.LimitReader(response.Body, maxLine))
	if err != nil || json.Unmarshal(body, &status) != nil || status.Code == 0 {
		return errors.Join(fmt.Errorf("read from the history: %s", response.Status), err)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// connection returns a client that trusts the CA in the directory.
func (c *Client) connection() (*http.Client, error) {
	ca, err := os.ReadFile(filepath.Join(c.directory, protocol.StatusCA))
	if err != nil {
		return nil, fmt.Errorf("read the CA of the history: %w", err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.client != nil && bytes.Equal(c.ca, ca) {
		return c.client, nil
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read the CA of the history: %s has no certificate in PEM", filepath.Join(c.directory, protocol.StatusCA))
	}
	c.ca = ca
	c.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ResponseHeaderTimeout: headerTimeout, TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
	}}
	return c.client, nil
}

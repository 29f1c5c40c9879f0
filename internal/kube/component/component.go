// SPDX-License-Identifier: Apache-2.0

// Package component calls the ports that Trireme's components open for each other, with the
// permissions of the process.
package component

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// headerTimeout is how long a component may take before it answers.
	headerTimeout = 20 * time.Second
	// maxStatus is more than the largest description of an error.
	maxStatus = 1 << 20
)

// Client sends requests to one component.
type Client struct {
	// name is the component in errors, such as "the operator".
	name, address string
	// directory has the token and the CA, which are read for each call: both are renewed.
	directory string

	mutex  sync.Mutex
	ca     []byte
	client *http.Client
}

// New returns a client for an address like the example.
func New(name, address, example, directory string) (*Client, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, fmt.Errorf("%q is not a valid address of %s: use one like %s", address, name, example)
	}
	return &Client{name: name, address: strings.TrimSuffix(address, "/"), directory: directory}, nil
}

// Read returns the object that a component answers, of at most so many bytes.
func Read[T any](ctx context.Context, c *Client, path string, maxBytes int64) (*T, error) {
	body, err := c.Open(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var found T
	if err := json.NewDecoder(io.LimitReader(body, maxBytes)).Decode(&found); err != nil {
		return nil, fmt.Errorf("read from %s: %w", c.name, err)
	}
	return &found, nil
}

// Open sends a request, and returns the body of a successful response. Other responses are
// errors of the API server's type.
func (c *Client) Open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	token, err := os.ReadFile(filepath.Join(c.directory, protocol.StatusToken))
	if err != nil {
		return nil, fmt.Errorf("read the token for %s: %w", c.name, err)
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
		return nil, fmt.Errorf("read from %s: %w", c.name, err)
	}
	if response.StatusCode < http.StatusMultipleChoices {
		return response.Body, nil
	}
	defer response.Body.Close()
	return nil, c.errorOf(response)
}

func (c *Client) errorOf(response *http.Response) error {
	var status metav1.Status
	body, err := io.ReadAll(io.LimitReader(response.Body, maxStatus))
	if err != nil || json.Unmarshal(body, &status) != nil || status.Code == 0 {
		return errors.Join(fmt.Errorf("read from %s: %s", c.name, response.Status), err)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// connection returns a client that trusts the CA in the directory.
func (c *Client) connection() (*http.Client, error) {
	file := filepath.Join(c.directory, protocol.StatusCA)
	ca, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the CA of %s: %w", c.name, err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.client != nil && bytes.Equal(c.ca, ca) {
		return c.client, nil
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read the CA of %s: %s has no certificate in PEM", c.name, file)
	}
	c.ca = ca
	// No connection stays open: another replica may take over.
	c.client = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ResponseHeaderTimeout: headerTimeout, TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
	}}
	return c.client, nil
}

// SPDX-License-Identifier: Apache-2.0

package agent

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
	"time"

	"github.com/trireme-mpi/trireme/internal/agent/protocol"
)

const (
	// postTimeout limits one message.
	postTimeout = 20 * time.Second
	// maxReply limits what is read of an answer.
	maxReply = 32 << 10
)

// poster sends messages to the operator.
type poster struct {
	url            string
	token, ca      string // paths
	client         *http.Client
	authorities    []byte
	maxMessageSize int
}

var errNotConfigured = errors.New("not configured")

// newPoster reads the variables of the progress protocol. It fails with errNotConfigured
// if the job does not report.
func newPoster() (*poster, error) {
	p := &poster{
		url:            os.Getenv(protocol.StatusURLVariable),
		token:          variable(protocol.StatusTokenVariable, filepath.Join(protocol.StatusDirectory, protocol.StatusToken)),
		ca:             variable(protocol.StatusCAVariable, filepath.Join(protocol.StatusDirectory, protocol.StatusCA)),
		maxMessageSize: protocol.MaxActivityBytes,
	}
	if p.url == "" {
		return nil, errNotConfigured
	}
	for _, file := range []string{p.token, p.ca} {
		if _, err := os.Stat(file); err != nil {
			return nil, errNotConfigured
		}
	}
	parsed, err := url.Parse(p.url)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return nil, fmt.Errorf("%s is not an https URL", protocol.StatusURLVariable)
	}
	p.url = strings.TrimSuffix(p.url, "/") + protocol.ActivitySuffix
	return p, nil
}

// post sends a message.
func (p *poster) post(ctx context.Context, a *protocol.Activity) (protocol.ActivityReply, error) {
	body, err := p.encode(a)
	if err != nil {
		return protocol.ActivityReply{}, err
	}
	// Both files are rotated.
	token, err := os.ReadFile(p.token)
	if err != nil {
		return protocol.ActivityReply{}, err
	}
	if err := p.trust(); err != nil {
		return protocol.ActivityReply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return protocol.ActivityReply{}, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "trireme-mpi-agent")
	response, err := p.client.Do(request)
	if err != nil {
		return protocol.ActivityReply{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return protocol.ActivityReply{}, err
	}
	if response.StatusCode != http.StatusOK {
		return protocol.ActivityReply{}, refusedWith(response.Status, content)
	}
	var reply protocol.ActivityReply
	if err := json.Unmarshal(content, &reply); err != nil {
		return protocol.ActivityReply{}, fmt.Errorf("the operator's answer is not JSON: %w", err)
	}
	return reply, nil
}

// refusedWith is the error for an answer of the operator, with the reason that it gives.
func refusedWith(status string, content []byte) error {
	var refusal struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(content, &refusal) != nil || refusal.Message == "" {
		return fmt.Errorf("the operator answers %s", status)
	}
	return fmt.Errorf("the operator answers %s: %s", status, refusal.Message)
}

// trust creates a client for the current CA. It uses no proxy of the container: a proxy
// outside of the cluster does not reach the operator, and must not see the token.
func (p *poster) trust() error {
	authorities, err := os.ReadFile(p.ca)
	if err != nil {
		return err
	}
	if p.client != nil && bytes.Equal(authorities, p.authorities) {
		return nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return fmt.Errorf("%s has no certificate", p.ca)
	}
	p.close()
	p.authorities = authorities
	p.client = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			MaxIdleConns:    1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: postTimeout, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

func (p *poster) close() {
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
}

// encode leaves out the ranks of hosts until the message is small enough.
func (p *poster) encode(a *protocol.Activity) ([]byte, error) {
	body, err := json.Marshal(a)
	for last := len(a.Hosts); err == nil && len(body) > p.maxMessageSize && last > 0; body, err = json.Marshal(a) {
		left := last * 3 / 4
		for i := left; i < last; i++ {
			a.Hosts[i] = protocol.Host{Name: a.Hosts[i].Name, Unknown: "the job has too many ranks for one message"}
		}
		last = left
	}
	return body, err
}

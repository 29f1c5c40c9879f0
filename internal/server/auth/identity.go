// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"context"
	"crypto/sha256"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/kube/connection"
)

// maxIdentities is the number of cached callers, with their clients.
const maxIdentities = 2000

// identity is an authenticated user, with clients that act as this user.
type identity struct {
	user    authenticationv1.UserInfo
	client  client.WithWatch
	cluster kubernetes.Interface
}

// caller returns the identity as the caller from a source. identifyAgain authenticates
// again.
func (i *identity) caller(source string, identifyAgain func(context.Context) (*identity, error)) *Caller {
	return &Caller{
		User: i.user.Username, UID: i.user.UID, Groups: i.user.Groups, extra: i.user.Extra,
		Source: source, Client: i.client, Cluster: i.cluster, identifyAgain: identifyAgain,
	}
}

// clients creates clients that act as a user.
type clients struct {
	// server is the connection with the server's own identity, or that of the kubeconfig.
	server *rest.Config
	maker  *connection.ClientFactory
}

func newClients(server *rest.Config) *clients {
	server = rest.CopyConfig(server)
	// The server limits callers, and the API server has its own limits.
	server.QPS, server.Burst = -1, -1
	server.WarningHandler = rest.NoWarnings{}
	return &clients{server: server, maker: connection.NewClientFactory(connection.OptionalKinds()...)}
}

// withToken has none of the server's credentials, only its connection settings. client-go
// shares connections between configs that differ only in their token.
func (c *clients) withToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(c.server)
	config.BearerToken = token
	return config
}

// as impersonates a user, with that user's permissions only.
func (c *clients) as(user authenticationv1.UserInfo) *rest.Config {
	config := rest.CopyConfig(c.server)
	config.Impersonate = rest.ImpersonationConfig{UserName: user.Username, Groups: user.Groups}
	return config
}

// identity returns an identity that uses a connection.
func (c *clients) identity(config *rest.Config, user authenticationv1.UserInfo) (*identity, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	cluster, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	objects, err := c.maker.Client(config, httpClient)
	if err != nil {
		return nil, err
	}
	return &identity{user: user, client: objects, cluster: cluster}, nil
}

func fingerprintOf(question []byte) fingerprint { return sha256.Sum256(question) }

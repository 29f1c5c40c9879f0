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

// mostIdentities is how many callers are remembered, with their clients.
const maxIdentities = 2000

// identity is somebody whom the cluster knows, with their own way to reach it.
type identity struct {
	user    authenticationv1.UserInfo
	client  client.WithWatch
	cluster kubernetes.Interface
}

// caller is the identity as it calls from somewhere. again asks again who it is.
func (i *identity) caller(source string, identifyAgain func(context.Context) (*identity, error)) *Caller {
	return &Caller{
		User: i.user.Username, UID: i.user.UID, Groups: i.user.Groups, extra: i.user.Extra,
		Source: source, Client: i.client, Cluster: i.cluster, identifyAgain: identifyAgain,
	}
}

// clients makes what reaches the cluster as somebody.
type clients struct {
	// server is the connection with the server's own identity, or the kubeconfig's.
	server *rest.Config
	maker  *connection.Maker
}

func newClients(server *rest.Config) *clients {
	server = rest.CopyConfig(server)
	// Callers have limits of their own, and the API server has its own.
	server.QPS, server.Burst = -1, -1
	server.WarningHandler = rest.NoWarnings{}
	return &clients{server: server, maker: connection.NewMaker(connection.OptionalKinds()...)}
}

// withToken has nothing of the server's identity, only its way to the API server.
// client-go shares the connections of all who differ by their token alone.
func (c *clients) withToken(token string) *rest.Config {
	config := rest.AnonymousClientConfig(c.server)
	config.BearerToken = token
	return config
}

// as is the server's identity that acts as a user, with that user's rights alone.
func (c *clients) as(user authenticationv1.UserInfo) *rest.Config {
	config := rest.CopyConfig(c.server)
	config.Impersonate = rest.ImpersonationConfig{UserName: user.Username, Groups: user.Groups}
	return config
}

// identity is a user who reaches the cluster by a connection.
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

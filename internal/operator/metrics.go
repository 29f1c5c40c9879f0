// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/kube/review"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

const (
	// reviewsPerSecond limits the reviews of clients that read metrics. They do not share
	// the rate limit of the reconcilers, so that refused clients cannot slow down jobs.
	reviewsPerSecond = 10
	reviewTimeout    = 10 * time.Second
)

// metricsOptions serve metrics over TLS to authorized clients.
//
// controller-runtime has such a filter too, but it adds 26 modules of the API server and
// 20 MB.
func metricsOptions(settings *config.Config) metricsserver.Options {
	return metricsserver.Options{
		BindAddress:    settings.Metrics.BindAddress,
		SecureServing:  true,
		FilterProvider: onlyReaders,
		TLSOpts: []func(*tls.Config){func(transport *tls.Config) {
			transport.GetCertificate = certificateIn(settings.Webhook.CertificateDirectory)
		}},
	}
}

// certificateIn reads the webhook's certificate for each connection: it may not exist
// yet when the server starts, and it is renewed later.
func certificateIn(directory string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(directory, corev1.TLSCertKey), filepath.Join(directory, corev1.TLSPrivateKeyKey))
		if err != nil {
			return nil, fmt.Errorf("read the webhook's certificate, which metrics use too: %w", err)
		}
		return &pair, nil
	}
}

// onlyReaders admits clients whose token is valid and who have the permission to get the
// path.
func onlyReaders(connection *rest.Config, transport *http.Client) (metricsserver.Filter, error) {
	connection = rest.CopyConfig(connection)
	connection.QPS, connection.Burst = reviewsPerSecond, reviewsPerSecond
	server, err := kubernetes.NewForConfigAndClient(connection, transport)
	if err != nil {
		return nil, err
	}
	return func(logger logr.Logger, metrics http.Handler) (http.Handler, error) {
		return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
			ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
			defer cancel()
			code, err := mayRead(ctx, server, request)
			if err != nil {
				logger.Error(err, "Review access to metrics")
			}
			if code != http.StatusOK {
				http.Error(response, http.StatusText(code), code)
				return
			}
			metrics.ServeHTTP(response, request)
		}), nil
	}, nil
}

// mayRead returns the HTTP status for a request: OK if it is allowed.
func mayRead(ctx context.Context, server kubernetes.Interface, request *http.Request) (int, error) {
	token, found := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	if !found || token == "" {
		return http.StatusUnauthorized, nil
	}
	user, err := review.Token(ctx, server, token)
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review a token: %w", err)
	}
	if user == nil {
		return http.StatusUnauthorized, nil
	}
	spec := review.Subject(user)
	spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: request.URL.Path, Verb: strings.ToLower(request.Method)}
	access, err := server.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return http.StatusInternalServerError, fmt.Errorf("review the permissions of %s: %w", user.Username, err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}

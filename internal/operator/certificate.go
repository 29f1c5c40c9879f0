// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trireme-mpi/trireme/internal/engine/config"
)

// +kubebuilder:rbac:groups="",namespace=trireme-system,resources=secrets,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",namespace=trireme-system,resources=secrets,resourceNames=trireme-webhook,verbs=update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations;mutatingwebhookconfigurations,resourceNames=trireme,verbs=update

// manageCertificate makes the operator issue and renew the webhook's certificate, store
// it in a Secret, and write its CA into the webhook configurations. certified is closed
// once all that is done for the first time. The returned cache has the Secret.
func manageCertificate(manager ctrl.Manager, settings config.Webhook, namespace string, certified chan struct{}) (cache.Cache, error) {
	host := settings.Host
	if host == "" {
		host = fmt.Sprintf("%s.%s.svc", settings.ServiceName, namespace)
	}
	secret := types.NamespacedName{Namespace: namespace, Name: settings.SecretName}
	if err := ensureSecret(manager.GetConfig(), secret); err != nil {
		return nil, err
	}
	if err := rotator.AddRotator(manager, &rotator.CertRotator{
		SecretKey:      secret,
		CertDir:        settings.CertificateDirectory,
		CAName:         "trireme-webhook",
		CAOrganization: "trireme",
		DNSName:        host,
		IsReady:        certified,
		Webhooks: []rotator.WebhookInfo{
			{Type: rotator.Validating, Name: settings.ConfigurationName},
			{Type: rotator.Mutating, Name: settings.ConfigurationName},
		},
	}); err != nil {
		return nil, err
	}
	return unpackSecret(manager, secret, settings.CertificateDirectory)
}

// ensureSecret creates the empty Secret for the certificate.
func ensureSecret(connection *rest.Config, name types.NamespacedName) error {
	server, err := client.New(connection, client.Options{})
	if err != nil {
		return err
	}
	err = server.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// unpackSecret writes the Secret's certificate to the directory that the webhook server
// reads. With a volume it could take two minutes, until the kubelet syncs Secrets.
func unpackSecret(manager ctrl.Manager, secret types.NamespacedName, directory string) (cache.Cache, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	secrets, err := cache.New(manager.GetConfig(), cache.Options{
		Scheme: manager.GetScheme(),
		Mapper: manager.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{secret.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", secret.Name)}},
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := manager.Add(onAllReplicas{secrets}); err != nil {
		return nil, err
	}
	unpacker, err := controller.New("webhook-certificate", manager, controller.Options{
		NeedLeaderElection: new(false),
		Reconciler: reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			var object corev1.Secret
			if err := secrets.Get(ctx, request.NamespacedName, &object); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			return reconcile.Result{}, writeCertificate(directory, object.Data)
		}),
	})
	if err != nil {
		return nil, err
	}
	return secrets, unpacker.Watch(source.Kind(secrets, &corev1.Secret{}, &handler.TypedEnqueueRequestForObject[*corev1.Secret]{}))
}

// onAllReplicas is a cache that does not wait until this replica leads.
type onAllReplicas struct{ cache.Cache }

// NeedLeaderElection is false, because every replica serves webhooks.
func (onAllReplicas) NeedLeaderElection() bool { return false }

// writeCertificate replaces each file atomically, the key first. A reader in between
// finds a pair that does not match, and retries.
func writeCertificate(directory string, data map[string][]byte) error {
	for _, name := range []string{corev1.TLSPrivateKeyKey, corev1.TLSCertKey} {
		content, found := data[name]
		if !found {
			return nil
		}
		temporary := filepath.Join(directory, "."+name)
		if err := os.WriteFile(temporary, content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(temporary, filepath.Join(directory, name)); err != nil {
			return err
		}
	}
	return nil
}

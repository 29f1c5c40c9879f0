// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator/issuer"
)

// +kubebuilder:rbac:groups="",namespace=trireme-system,resources=secrets,resourceNames=trireme-server-tls,verbs=update
// +kubebuilder:rbac:groups="",namespace=trireme-system,resources=configmaps,verbs=create
// +kubebuilder:rbac:groups="",namespace=trireme-system,resources=configmaps,resourceNames=trireme-ca,verbs=list;watch;update

const (
	// annotationIssued is the hash of the certificate that the operator wrote into a
	// Secret. A hash, because an administrator's certificate that replaces it keeps the
	// annotations of the Secret.
	annotationIssued = "training.kubeflow.org/issued-certificate"
	caCertificateKey = "ca.crt"
	caPrivateKey     = "ca.key"
	// historyService is the Service of the history, which has the server's certificate. The
	// certificate always has its name: kubelets take a minute to mount another one.
	historyService = "trireme-history"
)

// serverCertificate keeps the certificate of the server in a Secret and its CA in a
// ConfigMap. A certificate that the operator did not issue is never replaced.
type serverCertificate struct {
	reader client.Reader
	writer client.Writer
	clock  clock.PassiveClock
	// authority is the Secret with the CA, secret the one that the server reads, and
	// published the ConfigMap for its clients.
	authority, secret, published types.NamespacedName
	names                        []string
}

// manageServerCertificate makes the leader issue the server's certificate.
func manageServerCertificate(manager ctrl.Manager, settings *config.Config, namespace string) error {
	domain, err := findClusterDomain(settings)
	if err != nil {
		return err
	}
	in := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }
	objects, err := cache.New(manager.GetConfig(), cache.Options{
		Scheme: manager.GetScheme(),
		Mapper: manager.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{namespace: {}}},
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{
				namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", settings.Server.CAConfigMapName)},
			}},
		},
	})
	if err != nil {
		return err
	}
	// On all replicas, so that a new leader has the objects already.
	if err := manager.Add(onAllReplicas{objects}); err != nil {
		return err
	}
	issued := &serverCertificate{
		reader: objects, writer: manager.GetClient(), clock: clock.RealClock{}, names: serverNames(settings.Server, namespace, domain),
		authority: in(settings.Webhook.SecretName), secret: in(settings.Server.SecretName), published: in(settings.Server.CAConfigMapName),
	}
	return issued.watch(manager, objects)
}

// watch reconciles when one of the three objects changes. Every request is for the
// Secret of the server, whatever has changed.
func (sc *serverCertificate) watch(manager ctrl.Manager, objects cache.Cache) error {
	watcher, err := controller.New("server-certificate", manager, controller.Options{Reconciler: sc})
	if err != nil {
		return err
	}
	request := func(object client.Object) []reconcile.Request {
		switch client.ObjectKeyFromObject(object) {
		case sc.authority, sc.secret, sc.published:
			return []reconcile.Request{{NamespacedName: sc.secret}}
		}
		return nil
	}
	if err := watcher.Watch(source.Kind(objects, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
		func(_ context.Context, secret *corev1.Secret) []reconcile.Request { return request(secret) }))); err != nil {
		return err
	}
	return watcher.Watch(source.Kind(objects, &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(
		func(_ context.Context, published *corev1.ConfigMap) []reconcile.Request { return request(published) })))
}

// serverNames are the names in the server's certificate: those of its Service, localhost
// for kubectl port-forward, the history's, and the names that the administrator adds.
func serverNames(settings config.Server, namespace, domain string) []string {
	service := settings.ServiceName
	return append([]string{
		service, service + "." + namespace, service + "." + namespace + ".svc", service + "." + namespace + ".svc." + domain, "localhost",
		historyService + "." + namespace + ".svc",
	}, settings.ExtraNames...)
}

// Reconcile issues the certificate if it is missing, due, or does not fit the settings.
func (sc *serverCertificate) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	authority, err := sc.readAuthority(ctx)
	if err != nil || authority == nil {
		return reconcile.Result{}, err
	}
	var secret corev1.Secret
	if err := client.IgnoreNotFound(sc.reader.Get(ctx, sc.secret, &secret)); err != nil {
		return reconcile.Result{}, err
	}
	if !isIssued(&secret) {
		return reconcile.Result{}, sc.publish(ctx, givenAuthority(&secret, authority))
	}
	due := authority.RenewalTime(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], sc.names)
	if now := sc.clock.Now(); now.Before(due) {
		return reconcile.Result{RequeueAfter: due.Sub(now)}, sc.publish(ctx, authority.PEM)
	}
	if err := sc.issue(ctx, authority, &secret); err != nil {
		return reconcile.Result{}, ignoreRace(err)
	}
	// The Secret's own event continues from here.
	return reconcile.Result{RequeueAfter: time.Minute}, sc.publish(ctx, authority.PEM)
}

// readAuthority reads the webhook's CA. It is nil until the CA exists, which causes
// another event.
func (sc *serverCertificate) readAuthority(ctx context.Context) (*issuer.Authority, error) {
	var secret corev1.Secret
	if err := sc.reader.Get(ctx, sc.authority, &secret); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if len(secret.Data[caCertificateKey]) == 0 {
		return nil, nil
	}
	authority, err := issuer.Parse(secret.Data[caCertificateKey], secret.Data[caPrivateKey])
	if err != nil {
		return nil, fmt.Errorf("read the CA from Secret %s: %w", sc.authority, err)
	}
	return authority, nil
}

// isIssued reports whether a Secret may be written: it has no certificate, or one that
// the operator issued.
func isIssued(secret *corev1.Secret) bool {
	certificate := secret.Data[corev1.TLSCertKey]
	return len(certificate) == 0 || secret.Annotations[annotationIssued] == hashOf(certificate)
}

func hashOf(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

// givenAuthority returns the CA of a certificate that another client wrote, if the Secret
// has it, as with cert-manager.
func givenAuthority(secret *corev1.Secret, own *issuer.Authority) []byte {
	if given := secret.Data[caCertificateKey]; len(given) > 0 {
		return given
	}
	return own.PEM
}

func (sc *serverCertificate) issue(ctx context.Context, authority *issuer.Authority, secret *corev1.Secret) error {
	certificate, key, err := authority.Issue(sc.names, sc.clock.Now())
	if err != nil {
		return err
	}
	changed := secret.DeepCopy()
	changed.Namespace, changed.Name = sc.secret.Namespace, sc.secret.Name
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, annotationIssued, hashOf(certificate))
	changed.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key, caCertificateKey: authority.PEM}
	if secret.ResourceVersion == "" {
		changed.Type = corev1.SecretTypeTLS
		err = sc.writer.Create(ctx, changed)
	} else {
		err = sc.writer.Update(ctx, changed)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", sc.secret, err)
	}
	logf.FromContext(ctx).Info("issued the server certificate", "secret", sc.secret.String(), "names", sc.names)
	return nil
}

// publish writes the CA's certificate where every user of the cluster may read it.
func (sc *serverCertificate) publish(ctx context.Context, authority []byte) error {
	var published corev1.ConfigMap
	err := sc.reader.Get(ctx, sc.published, &published)
	if apierrors.IsNotFound(err) {
		return ignoreRace(sc.writer.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: sc.published.Namespace, Name: sc.published.Name},
			Data:       map[string]string{caCertificateKey: string(authority)},
		}))
	}
	if err != nil || published.Data[caCertificateKey] == string(authority) {
		return err
	}
	changed := published.DeepCopy()
	changed.Data = map[string]string{caCertificateKey: string(authority)}
	return ignoreRace(sc.writer.Update(ctx, changed))
}

// ignoreRace drops the error of a write that lost against another client: that client's
// write causes another event.
func ignoreRace(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

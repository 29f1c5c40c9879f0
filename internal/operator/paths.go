// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trireme-mpi/trireme/internal/engine/config"
	"github.com/trireme-mpi/trireme/internal/operator/admission"
)

// randomPathKey is the key of the random path suffix in the webhook's Secret. All
// replicas share it.
const randomPathKey = "path"

// randomPath is a secret suffix of every webhook path, for clusters whose API server has
// no client certificate. Pods cannot read it: it is in the webhook configurations and in
// the Secret. It is a suffix, because metrics have the registered prefix as a label.
type randomPath struct {
	mutex             sync.RWMutex
	current, previous string
}

// set replaces the suffix. The previous one is still accepted, because the API server
// uses the new one a little later.
func (rp *randomPath) set(value string) {
	rp.mutex.Lock()
	defer rp.mutex.Unlock()
	if value != rp.current {
		rp.current, rp.previous = value, rp.current
	}
}

func (rp *randomPath) accepts(value string) bool {
	rp.mutex.RLock()
	defer rp.mutex.RUnlock()
	for _, known := range []string{rp.current, rp.previous} {
		if known != "" && subtle.ConstantTimeCompare([]byte(known), []byte(value)) == 1 {
			return true
		}
	}
	return false
}

// guard serves the handlers to clients that know the suffix.
func (rp *randomPath) guard(handlers map[string]http.Handler) map[string]http.Handler {
	guarded := make(map[string]http.Handler, len(handlers))
	for path, next := range handlers {
		folder := path + "/"
		guarded[folder] = http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
			if !rp.accepts(strings.TrimPrefix(request.URL.Path, folder)) {
				http.NotFound(writer, request)
				return
			}
			next.ServeHTTP(writer, request)
		})
	}
	return guarded
}

// pathWriter writes the paths into both webhook configurations. Like the CA, they are not
// in the manifests, so that applying the manifests again does not remove them.
type pathWriter struct {
	api           liveAPI
	configuration string
	// random is nil if client certificates are verified.
	random *randomPath
	secret types.NamespacedName
	// written is closed once the paths are written for the first time.
	written chan struct{}
	first   sync.Once
}

// writePaths starts a controller that keeps the paths written. secrets has the webhook's
// Secret; it is nil if the operator does not manage the Secret, and then there is no
// random suffix.
func writePaths(manager ctrl.Manager, settings config.Webhook, namespace string, secrets cache.Cache) (*pathWriter, error) {
	writer := &pathWriter{
		api:           liveAPI{manager.GetAPIReader(), manager.GetClient()},
		configuration: settings.ConfigurationName,
		secret:        types.NamespacedName{Namespace: namespace, Name: settings.SecretName},
		written:       make(chan struct{}),
	}
	if settings.ClientCAFile == "" && secrets != nil {
		writer.random = &randomPath{}
	}
	watching, err := controller.New("webhook-paths", manager, controller.Options{NeedLeaderElection: new(false), Reconciler: writer})
	if err != nil {
		return nil, err
	}
	sources := []source.Source{
		// A cluster without webhook configurations has no events.
		source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{})
			return nil
		}),
		source.Kind(manager.GetCache(), &admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueueOne[*admissionregistrationv1.ValidatingWebhookConfiguration](settings.ConfigurationName)),
		source.Kind(manager.GetCache(), &admissionregistrationv1.MutatingWebhookConfiguration{}, enqueueOne[*admissionregistrationv1.MutatingWebhookConfiguration](settings.ConfigurationName)),
	}
	if writer.random != nil {
		sources = append(sources, source.Kind(secrets, &corev1.Secret{}, enqueueOne[*corev1.Secret](settings.SecretName)))
	}
	for _, from := range sources {
		if err := watching.Watch(from); err != nil {
			return nil, err
		}
	}
	return writer, nil
}

// enqueueOne enqueues the same request for every event of the object of that name.
func enqueueOne[T client.Object](name string) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, object T) []reconcile.Request {
		if object.GetName() != name {
			return nil
		}
		return []reconcile.Request{{}}
	})
}

// Reconcile writes the paths. All replicas do so, and write the same.
func (pw *pathWriter) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	end, isKnown, err := pw.end(ctx)
	if err == nil && isKnown {
		err = pw.write(ctx, end)
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	if err == nil && isKnown {
		pw.first.Do(func() { close(pw.written) })
	}
	return reconcile.Result{}, err
}

// end returns the suffix of the paths. It is not known before the Secret has a
// certificate, because the certificate's writer would overwrite it.
func (pw *pathWriter) end(ctx context.Context) (end string, isKnown bool, err error) {
	if pw.random == nil {
		return "", true, nil
	}
	var secret corev1.Secret
	if err := pw.api.Get(ctx, pw.secret, &secret); err != nil {
		return "", false, client.IgnoreNotFound(err)
	}
	if len(secret.Data[corev1.TLSCertKey]) == 0 {
		return "", false, nil
	}
	if len(secret.Data[randomPathKey]) == 0 {
		secret.Data[randomPathKey] = []byte(newRandomPath())
		if err := pw.api.Update(ctx, &secret); err != nil {
			return "", false, err
		}
	}
	random := string(secret.Data[randomPathKey])
	pw.random.set(random)
	return "/" + random, true, nil
}

// newRandomPath has only characters that the API server allows in a path.
func newRandomPath() string {
	bytes := make([]byte, 16)
	_, _ = rand.Read(bytes) // never fails
	return hex.EncodeToString(bytes)
}

func (pw *pathWriter) write(ctx context.Context, end string) error {
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	if err := pw.update(ctx, &validating, func() (isChanged bool) {
		for i := range validating.Webhooks {
			isChanged = setPath(validating.Webhooks[i].Name, &validating.Webhooks[i].ClientConfig, end) || isChanged
		}
		return isChanged
	}); err != nil {
		return err
	}
	return pw.update(ctx, &mutating, func() (isChanged bool) {
		for i := range mutating.Webhooks {
			isChanged = setPath(mutating.Webhooks[i].Name, &mutating.Webhooks[i].ClientConfig, end) || isChanged
		}
		return isChanged
	})
}

// update reads a configuration and writes it back if change returns true. A missing
// configuration is ignored: its creation causes an event.
func (pw *pathWriter) update(ctx context.Context, configuration client.Object, change func() bool) error {
	err := pw.api.Get(ctx, client.ObjectKey{Name: pw.configuration}, configuration)
	if err != nil || !change() {
		return client.IgnoreNotFound(err)
	}
	return pw.api.Update(ctx, configuration)
}

// setPath sets the path of a webhook, and reports whether that changes it. Webhooks of
// others are left alone.
func setPath(webhook string, to *admissionregistrationv1.WebhookClientConfig, end string) bool {
	path, found := admission.PathOf(webhook)
	path += end
	switch {
	case !found:
		return false
	case to.Service != nil:
		if to.Service.Path != nil && *to.Service.Path == path {
			return false
		}
		to.Service.Path = &path
		return true
	case to.URL != nil:
		address, err := url.Parse(*to.URL)
		if err != nil || address.Path == path {
			return false
		}
		address.Path = path
		to.URL = new(address.String())
		return true
	}
	return false
}

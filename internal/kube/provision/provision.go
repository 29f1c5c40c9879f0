// SPDX-License-Identifier: Apache-2.0

// Package provision prepares namespaces for teams: it checks the permissions of the
// caller, and applies the objects of internal/engine/teamspace.
package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/engine/teamspace"
)

// Action is what was done with an object.
type Action string

// Actions, in the words of kubectl.
const (
	Created    Action = "created"
	Configured Action = "configured"
	Unchanged  Action = "unchanged"
)

// Result is an object, and what was done with it.
type Result struct {
	Object *unstructured.Unstructured
	Action Action
}

// Options of Apply.
type Options struct {
	// DryRun asks the API server to validate without storing anything.
	DryRun bool
	// Force takes over fields that another field manager has set.
	Force bool
}

// ErrForbidden is the error of a caller who lacks permissions; nothing was changed.
type ErrForbidden struct{ Missing []string }

func (e *ErrForbidden) Error() string {
	return "permissions are missing: " + strings.Join(e.Missing, ", ")
}

// ErrPullSecret is the error of an image pull secret that cannot be copied.
type ErrPullSecret struct {
	Name string
	Err  error
}

func (e *ErrPullSecret) Error() string { return "image pull secret " + e.Name + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ErrPullSecret) Unwrap() error { return e.Err }

// Objects returns the objects of a namespace. It reads the image pull secret, if the
// settings name one.
func Objects(ctx context.Context, api client.Client, settings teamspace.Settings) ([]*unstructured.Unstructured, error) {
	secret, err := pullSecret(ctx, api, settings)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, object := range teamspace.Objects(settings, secret) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return nil, err
		}
		// Fields without a value must not be owned.
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects, nil
}

// ReportsPort returns the port of the operator's Service for reports, and the default if the
// Service cannot be read or does not exist.
func ReportsPort(ctx context.Context, api client.Client, operatorNamespace string) int32 {
	var service corev1.Service
	err := api.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: job.ReportsService}, &service)
	if err != nil || len(service.Spec.Ports) == 0 {
		return job.ReportsPort
	}
	return service.Spec.Ports[0].Port
}

func pullSecret(ctx context.Context, api client.Client, settings teamspace.Settings) (*corev1.Secret, error) {
	if settings.PullSecret == "" {
		return nil, nil
	}
	namespace, name, err := settings.PullSecretName()
	if err != nil {
		return nil, err
	}
	var secret corev1.Secret
	err = api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &secret)
	if err == nil && secret.Type != corev1.SecretTypeDockerConfigJson && secret.Type != corev1.SecretTypeDockercfg {
		err = fmt.Errorf("its type is %s; an image pull secret has type %s", secret.Type, corev1.SecretTypeDockerConfigJson)
	}
	if err != nil {
		return nil, &ErrPullSecret{settings.PullSecret, err}
	}
	return &secret, nil
}

// Apply applies objects of a namespace, the namespace itself first. It changes nothing if
// a permission is missing or the API server refuses one of the objects.
func Apply(ctx context.Context, api client.Client, objects []*unstructured.Unstructured, options Options) ([]Result, error) {
	exists, err := namespaceExists(ctx, api, objects[0].GetName())
	if err != nil {
		return nil, err
	}
	if err := checkPermissions(ctx, api, objects, exists); err != nil {
		return nil, err
	}
	// Nothing can be tried in a namespace that does not exist yet.
	tried := objects
	if !exists {
		tried = objects[:1]
	}
	results, err := applyAll(ctx, api, tried, Options{DryRun: true, Force: options.Force})
	if err != nil {
		return nil, err
	}
	if options.DryRun {
		for _, object := range objects[len(tried):] {
			results = append(results, Result{object, Created})
		}
		return results, nil
	}
	return applyAll(ctx, api, objects, options)
}

func namespaceExists(ctx context.Context, api client.Client, name string) (bool, error) {
	var namespace corev1.Namespace
	err := api.Get(ctx, client.ObjectKey{Name: name}, &namespace)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return false, &ErrForbidden{Missing: []string{"get namespaces " + name}}
	case err != nil:
		return false, fmt.Errorf("read namespace %s: %w", name, err)
	case namespace.DeletionTimestamp != nil:
		return false, fmt.Errorf("namespace %s is being deleted; wait until it is deleted, and retry", name)
	}
	return true, nil
}

func applyAll(ctx context.Context, api client.Client, objects []*unstructured.Unstructured, options Options) (results []Result, err error) {
	for _, object := range objects {
		result, err := apply(ctx, api, object.DeepCopy(), options)
		if err != nil {
			return results, fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		results = append(results, result)
	}
	return results, nil
}

// apply compares resource versions to find out what the API server has done.
func apply(ctx context.Context, api client.Client, object *unstructured.Unstructured, options Options) (Result, error) {
	before := &unstructured.Unstructured{}
	before.SetGroupVersionKind(object.GroupVersionKind())
	err := api.Get(ctx, client.ObjectKeyFromObject(object), before)
	if client.IgnoreNotFound(err) != nil {
		return Result{}, err
	}
	applying := []client.ApplyOption{client.FieldOwner(teamspace.FieldManager)}
	if options.DryRun {
		applying = append(applying, client.DryRunAll)
	}
	if options.Force {
		applying = append(applying, client.ForceOwnership)
	}
	if err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), applying...); err != nil {
		return Result{}, err
	}
	switch {
	case err != nil:
		return Result{object, Created}, nil
	case before.GetResourceVersion() == object.GetResourceVersion():
		return Result{object, Unchanged}, nil
	default:
		return Result{object, Configured}, nil
	}
}

// checkPermissions asks for everything that Apply does. In a namespace that exists, the
// API server also verifies by a dry run that the caller may bind the roles.
func checkPermissions(ctx context.Context, api client.Client, objects []*unstructured.Unstructured, exists bool) error {
	var missing []string
	for _, asked := range permissions(objects, exists) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &asked}}
		if err := api.Create(ctx, review); err != nil {
			return fmt.Errorf("check your permissions: %w", err)
		}
		if !review.Status.Allowed {
			missing = append(missing, strings.TrimSpace(fmt.Sprintf("%s %s %s", asked.Verb, asked.Resource, asked.Name)))
		}
	}
	if len(missing) > 0 {
		return &ErrForbidden{Missing: missing}
	}
	return nil
}

func permissions(objects []*unstructured.Unstructured, exists bool) (all []authorizationv1.ResourceAttributes) {
	asked := map[authorizationv1.ResourceAttributes]bool{}
	ask := func(attributes authorizationv1.ResourceAttributes) {
		if !asked[attributes] {
			asked[attributes] = true
			all = append(all, attributes)
		}
	}
	for _, object := range objects {
		resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
		of := authorizationv1.ResourceAttributes{Group: resource.Group, Resource: resource.Resource, Namespace: object.GetNamespace()}
		// Permissions for these are often given by name.
		if kind := object.GetKind(); kind == "Namespace" || kind == "Secret" {
			of.Name = object.GetName()
		}
		for _, verb := range []string{"get", "create", "patch"} {
			of.Verb = verb
			ask(of)
		}
		if role, _, _ := unstructured.NestedString(object.Object, "roleRef", "name"); role != "" && !exists {
			ask(authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: role, Verb: "bind", Namespace: object.GetNamespace()})
		}
	}
	return all
}

// IsConflict reports whether another field manager has set a field.
func IsConflict(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonConflict
}

// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trireme-mpi/trireme/internal/engine/validation"
	"github.com/trireme-mpi/trireme/internal/kube/review"
)

// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// Reviewer creates SubjectAccessReviews, which the API server answers and does not
// store.
type Reviewer interface {
	Create(ctx context.Context, object client.Object, options ...client.CreateOption) error
}

// Live reads from the API server instead of the cache.
type Live interface {
	client.Reader
	Reviewer
}

// checkReferences refuses Secrets and ServiceAccounts that the author of a job may not
// use: the kubelet would give them to the pods. Users who may create pods could mount
// them anyway, so only that permission is reviewed for them. That is one review for most
// users, and none for jobs without references.
func checkReferences(ctx context.Context, reviewer Reviewer, request *admission.Request, named []validation.Reference, findings *validation.Findings) error {
	if len(named) == 0 {
		return nil
	}
	user, namespace := &request.UserInfo, request.Namespace
	may, err := isAllowed(ctx, reviewer, user, &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"})
	if err != nil || may {
		return err
	}
	if len(named) > validation.MaxReferences {
		findings.Errors = append(findings.Errors, validation.TooManyReferences(user.Username, namespace, len(named)))
		return nil
	}
	for _, reference := range named {
		verb, resource := reference.Kind.Permission()
		may, err := isAllowed(ctx, reviewer, user, &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Resource: resource, Name: reference.Name,
		})
		if err != nil {
			return err
		}
		if !may {
			findings.Errors = append(findings.Errors, reference.Forbidden(user.Username, namespace))
		}
	}
	return nil
}

// isAllowed reviews a permission of a user. After an error the job is refused, and the
// message says to retry.
func isAllowed(ctx context.Context, reviewer Reviewer, user *authenticationv1.UserInfo, attributes *authorizationv1.ResourceAttributes) (bool, error) {
	access := &authorizationv1.SubjectAccessReview{Spec: review.Subject(user)}
	access.Spec.ResourceAttributes = attributes
	if err := reviewer.Create(ctx, access); err != nil {
		return false, fmt.Errorf("the permission of user %q to %s %s in namespace %q could not be checked, so the job was not created; retry: %w",
			user.Username, attributes.Verb, attributes.Resource, attributes.Namespace, err)
	}
	return access.Status.Allowed, nil
}

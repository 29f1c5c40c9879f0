// SPDX-License-Identifier: Apache-2.0

package teamspace

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// name of the ResourceQuota and the LimitRange, and the start of other names.
const name = "trireme"

// FieldManager owns the fields of the objects, whoever applies them.
const FieldManager = "trireme-namespace"

// Object is an object of the API, with its kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Objects returns the objects of a namespace in the order of creation. The settings are
// valid; pullSecret is the Secret that they name, or nil.
func Objects(s Settings, pullSecret *corev1.Secret) []Object {
	objects := []Object{namespace(s)}
	if len(s.Quota) > 0 {
		objects = append(objects, &corev1.ResourceQuota{
			TypeMeta: typeOf("v1", "ResourceQuota"), ObjectMeta: meta(s, name), Spec: corev1.ResourceQuotaSpec{Hard: s.Quota},
		})
	}
	if len(s.DefaultRequests) > 0 {
		objects = append(objects, &corev1.LimitRange{
			TypeMeta: typeOf("v1", "LimitRange"), ObjectMeta: meta(s, name), Spec: corev1.LimitRangeSpec{
				Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: s.DefaultRequests}},
			},
		})
	}
	if s.Isolation != IsolationNone {
		objects = append(objects, networkPolicies(s)...)
	}
	objects = append(objects, roleBindings(s)...)
	if pullSecret != nil {
		objects = append(objects, &corev1.Secret{
			TypeMeta: typeOf("v1", "Secret"), ObjectMeta: meta(s, pullSecret.Name), Type: pullSecret.Type, Data: pullSecret.Data,
		})
	}
	return objects
}

// namespace sets what PodSecurity refuses, and of what it warns.
func namespace(s Settings) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: typeOf("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": s.PodSecurity,
		"pod-security.kubernetes.io/warn":    s.PodSecurity,
		"pod-security.kubernetes.io/audit":   s.PodSecurity,
	}}}
}

// roleBindings bind members to the roles of the chart, one binding for each role.
func roleBindings(s Settings) (bindings []Object) {
	for _, group := range []struct {
		name    string
		members []string
		roles   []string
	}{
		{"admins", s.Admins, []string{"trainjob-editor", "mpijob-admin", "trainingruntime-admin"}},
		{"editors", s.Editors, []string{"trainjob-editor", "mpijob-user"}},
		{"viewers", s.Viewers, []string{"trainjob-viewer", "mpijob-viewer"}},
	} {
		for _, role := range group.roles {
			if len(group.members) == 0 {
				continue
			}
			binding := &rbacv1.RoleBinding{
				TypeMeta:   typeOf("rbac.authorization.k8s.io/v1", "RoleBinding"),
				ObjectMeta: meta(s, fmt.Sprintf("%s-%s-%s", name, group.name, role)),
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			}
			for _, member := range group.members {
				bound, err := subject(member)
				if err != nil {
					continue // Validate has refused it.
				}
				binding.Subjects = append(binding.Subjects, bound)
			}
			bindings = append(bindings, binding)
		}
	}
	return bindings
}

// subject parses user:NAME or group:NAME.
func subject(member string) (rbacv1.Subject, error) {
	kind, of, found := strings.Cut(member, ":")
	kinds := map[string]string{"user": rbacv1.UserKind, "group": rbacv1.GroupKind}
	if !found || of == "" || kinds[kind] == "" {
		return rbacv1.Subject{}, fmt.Errorf("member %q must be user:NAME or group:NAME", member)
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: kinds[kind], Name: of}, nil
}

func typeOf(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

func meta(s Settings, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Name, Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": FieldManager}}
}

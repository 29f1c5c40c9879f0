// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/testing/deployed"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// people are those who are given a role, and what each may do. A role of the
// whole cluster is bound for the whole cluster.
var people = map[string]struct {
	role      string
	ofCluster bool
	may, not  []string
}{
	"platform administrator": {
		role: "clustertrainingruntime-admin", ofCluster: true,
		may: []string{"create clustertrainingruntimes", "update clustertrainingruntimes", "delete clustertrainingruntimes", "create trainingruntimes"},
		not: []string{"create trainjobs", "delete mpijobs", "get secrets"},
	},
	"project administrator": {
		role: "trainingruntime-admin",
		may:  []string{"create trainingruntimes", "update trainingruntimes", "delete trainingruntimes", "list clustertrainingruntimes"},
		not:  []string{"create clustertrainingruntimes", "update clustertrainingruntimes", "get secrets"},
	},
	"data scientist": {
		role: "trainjob-editor",
		may: []string{"create trainjobs", "get trainjobs", "list trainjobs", "watch trainjobs", "update trainjobs", "patch trainjobs", "delete trainjobs",
			"get trainingruntimes", "list trainingruntimes", "get clustertrainingruntimes", "list clustertrainingruntimes", "get pods", "get pods/log", "list events", "list resourcequotas"},
		not: []string{"create trainingruntimes", "update trainingruntimes", "create clustertrainingruntimes", "update trainjobs/status", "create pods/exec", "get secrets"},
	},
	"viewer": {
		role: "trainjob-viewer",
		may:  []string{"get trainjobs", "list trainjobs", "watch trainjobs", "get trainingruntimes", "list clustertrainingruntimes", "get pods/log"},
		not:  []string{"create trainjobs", "update trainjobs", "delete trainjobs", "create trainingruntimes", "get secrets"},
	},
	"user of MPIJobs": {
		role: "mpijob-user",
		may:  []string{"create mpijobs", "list mpijobs", "patch mpijobs", "delete mpijobs", "get pods/log", "list resourcequotas"},
		not:  []string{"deletecollection mpijobs", "update mpijobs/status", "get secrets"},
	},
	"administrator of MPIJobs": {role: "mpijob-admin", may: []string{"create mpijobs", "deletecollection mpijobs"}, not: []string{"update mpijobs/status", "get secrets"}},
	"viewer of MPIJobs":        {role: "mpijob-viewer", may: []string{"get mpijobs", "watch mpijobs", "get pods/log"}, not: []string{"create mpijobs", "delete mpijobs"}},
	"anybody":                  {may: []string{"get clustertrainingruntimes", "list clustertrainingruntimes"}, not: []string{"get trainjobs", "list mpijobs", "get trainingruntimes", "create clustertrainingruntimes"}},
}

func TestRolesOfPeople(t *testing.T) {
	cluster := sharedCluster.For(t)
	for _, document := range deployed.UserRoles(t) {
		cluster.createIfMissing(t, document)
	}
	namespace, another := cluster.namespace(t, nil), cluster.namespace(t, nil)
	for name, person := range people {
		t.Run(name, func(t *testing.T) {
			cluster.bind(t, namespace, name, person.role, person.ofCluster)
			for _, right := range person.may {
				eventually.Succeeds(t, name+" may "+right, func() error { return cluster.allowed(t, name, namespace, right, true) })
			}
			for _, right := range person.not {
				if err := cluster.allowed(t, name, namespace, right, false); err != nil {
					t.Error(err)
				}
			}
			// A project's rights end with the project; what is everybody's does not.
			for _, right := range person.may {
				if !person.ofCluster && !strings.Contains(right, "clustertrainingruntimes") {
					if err := cluster.allowed(t, name, another, right, false); err != nil {
						t.Errorf("in another namespace: %v", err)
					}
				}
			}
		})
	}
}

func (cluster *cluster) bind(t *testing.T, namespace, person, role string, ofCluster bool) {
	t.Helper()
	if role == "" {
		return
	}
	reference := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: person}}
	if ofCluster {
		cluster.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{GenerateName: "person-"}, RoleRef: reference, Subjects: subjects})
		return
	}
	cluster.create(t, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "person-"}, RoleRef: reference, Subjects: subjects})
}

// allowed asks the API server whether somebody has a right, such as "get
// pods/log", and is an error if the answer is not the one that is wanted.
func (cluster *cluster) allowed(t *testing.T, person, namespace, right string, want bool) error {
	t.Helper()
	verb, resource, _ := strings.Cut(right, " ")
	resource, subresource, _ := strings.Cut(resource, "/")
	group := ""
	if strings.HasSuffix(resource, "jobs") || strings.HasSuffix(resource, "runtimes") {
		group = v2alpha1.GroupVersion.Group
	}
	if resource == "clustertrainingruntimes" {
		namespace = ""
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: person, Groups: []string{"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: subresource},
	}}
	if err := cluster.client.Create(t.Context(), review); err != nil {
		return err
	}
	if review.Status.Allowed != want {
		return fmt.Errorf("%s: %s is allowed: %t, want %t", person, right, review.Status.Allowed, want)
	}
	return nil
}

// A data scientist starts a job that names runtimes of the project and of the
// cluster, and nothing more is needed.
func TestDataScientistRunsAJob(t *testing.T) {
	cluster := sharedCluster.For(t)
	for _, document := range deployed.UserRoles(t) {
		cluster.createIfMissing(t, document)
	}
	namespace := cluster.namespace(t, nil)
	cluster.create(t, runtime(namespace, "mpi"))
	cluster.bind(t, namespace, "bob", "trainjob-editor", false)
	identity, err := cluster.environment.AddUser(envtest.User{Name: "bob", Groups: []string{"system:authenticated"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	bob := cluster.as(t, identity.Config())
	eventually.Succeeds(t, "bob may", func() error { return client.IgnoreAlreadyExists(bob.Create(t.Context(), trainJob(namespace, "train"))) })
	if err := bob.List(t.Context(), &v2alpha1.ClusterTrainingRuntimeList{}); err != nil {
		t.Error(err)
	}
	if err := bob.Create(t.Context(), runtime(namespace, "own")); err == nil {
		t.Error("whoever runs jobs may also write runtimes")
	}
}

// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/testing/controlplane"
	"github.com/trireme-mpi/trireme/internal/testing/eventually"
)

// TestQuotaForetellsTheAPIServer asks internal/engine/quota and a real API server the
// same question: will these pods be accepted?
func TestQuotaForetellsTheAPIServer(t *testing.T) {
	environment := controlplane.Start(t, nil)
	client, err := kubernetes.NewForConfig(environment.Config)
	if err != nil {
		t.Fatal(err)
	}
	createPriorityClasses(t, client, "high", "low")
	for kind, cases := range map[string]map[string]quotaCase{
		"resources": resourceCases, "scopes": scopeCases, "limit ranges": limitRangeCases, "pods": podCases,
	} {
		for name, tc := range cases {
			t.Run(kind+"/"+name, func(t *testing.T) { tc.run(t, client) })
		}
	}
	for name, tc := range secretCases {
		t.Run("objects/"+name, func(t *testing.T) { tc.run(t, client) })
	}
}

// quotaCase is a namespace and the pods of a job that shall be created in it.
type quotaCase struct {
	quotas   []quotaOption
	limits   []corev1.LimitRangeItem
	launcher *corev1.PodSpec
	worker   *corev1.PodSpec
	workers  int64
	// wantRefused keeps a case from passing because both sides accept what was
	// meant to be too much.
	wantRefused bool
}

func (tc *quotaCase) run(t *testing.T, client kubernetes.Interface) {
	if tc.worker.Resources != nil && strings.HasPrefix(controlplane.KubernetesOf(t).Version, "v1.33.") {
		t.Skip("Kubernetes 1.33 ignores resources of a whole pod")
	}
	place := newPlace(t, client, tc.quotas, tc.limits)
	demand := &quota.Demand{Workers: quota.Pods{Count: tc.workers, Spec: quota.WithLimitRanges(tc.worker, place.ranges)}}
	pods := make([]*corev1.PodSpec, tc.workers)
	for i := range pods {
		pods[i] = tc.worker
	}
	if tc.launcher != nil {
		demand.Launcher = quota.Pods{Count: 1, Spec: quota.WithLimitRanges(tc.launcher, place.ranges)}
		pods = append([]*corev1.PodSpec{tc.launcher}, pods...)
	}
	fitting := quota.FittingWorkers(demand, place.quotas(t))
	short := len(quota.Shortages(demand, place.quotas(t))) > 0

	var refusal error
	var prophecies [][]string
	for _, pod := range pods {
		// Asked anew before every pod, with the usage that admission itself wrote.
		prophecies = append(prophecies, place.prophecy(t, demand))
		if refusal = place.create(t, pod); refusal != nil {
			break
		}
		if demand.Launcher.Count > 0 {
			demand.Launcher.Count = 0
		} else {
			demand.Workers.Count--
		}
	}
	if refused := refusal != nil; refused != tc.wantRefused {
		t.Errorf("the API server refused: %t, want %t (%v)", refused, tc.wantRefused, refusal)
	}
	for created, prophecy := range prophecies {
		if foretold := len(prophecy) > 0; foretold != (refusal != nil) {
			t.Errorf("with %d pods created, foretold %q, but the API server said %v", created, prophecy, refusal)
		}
	}
	if accepted := tc.workers - demand.Workers.Count; short && accepted != fitting {
		t.Errorf("%d workers were accepted, but %d were said to fit", accepted, fitting)
	}
}

// place is a namespace with quotas and a LimitRange.
type place struct {
	client    kubernetes.Interface
	namespace string
	ranges    []corev1.LimitRange
}

func newPlace(t *testing.T, client kubernetes.Interface, quotas []quotaOption, limits []corev1.LimitRangeItem) *place {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "quota-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	place := &place{client: client, namespace: namespace.Name}
	if len(limits) > 0 {
		// Kubernetes fills in defaults here: what is stored is what counts.
		stored, err := client.CoreV1().LimitRanges(place.namespace).Create(t.Context(),
			&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "range"}, Spec: corev1.LimitRangeSpec{Limits: limits}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		place.ranges = []corev1.LimitRange{*stored}
	}
	for i, option := range quotas {
		place.createQuota(t, fmt.Sprintf("quota-%d", i), option)
	}
	place.waitForAdmission(t)
	return place
}

// createQuota does what the quota controller would do too: write the status.
func (place *place) createQuota(t *testing.T, name string, fill quotaOption) {
	t.Helper()
	resourceQuota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}}
	fill(resourceQuota)
	status := corev1.ResourceQuotaStatus{Hard: resourceQuota.Spec.Hard, Used: corev1.ResourceList{}}
	for name := range status.Hard {
		status.Used[name] = resourceQuota.Status.Used[name]
	}
	stored, err := place.client.CoreV1().ResourceQuotas(place.namespace).Create(t.Context(), resourceQuota, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Status = status
	if _, err := place.client.CoreV1().ResourceQuotas(place.namespace).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// barrier is a quota that no pod counts for.
const barrier = "barrier"

// waitForAdmission returns when the admission plugin knows the quotas. It watches
// them, and once it has seen the last one it has seen those before.
func (place *place) waitForAdmission(t *testing.T) {
	t.Helper()
	place.createQuota(t, barrier, hard("count/configmaps", "0"))
	eventually.Holds(t, "admission knows the quotas", func() bool {
		_, err := place.client.CoreV1().ConfigMaps(place.namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: barrier}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "exceeded quota: "+barrier)
	})
}

// quotas are as they stand now, with the usage that admission has written.
func (place *place) quotas(t *testing.T) []corev1.ResourceQuota {
	t.Helper()
	list, err := place.client.CoreV1().ResourceQuotas(place.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// prophecy is every reason that internal/engine/quota has for a refusal.
func (place *place) prophecy(t *testing.T, demand *quota.Demand) []string {
	t.Helper()
	quotas := place.quotas(t)
	var reasons []string
	for _, pods := range []quota.Pods{demand.Launcher, demand.Workers} {
		if pods.Count == 0 {
			continue
		}
		reasons = append(reasons, quota.OutOfRange(pods.Spec, place.ranges)...)
		for _, unstated := range quota.UnstatedResources(pods.Spec, quotas) {
			reasons = append(reasons, fmt.Sprintf("%+v", unstated))
		}
	}
	for _, shortage := range quota.Shortages(demand, quotas) {
		reasons = append(reasons, fmt.Sprintf("%s: requested %s %s, available %s",
			shortage.Quota, &shortage.Requested, shortage.Resource, &shortage.Available))
	}
	return reasons
}

// create returns the API server's refusal, if any. Pods that are wrong in
// another way have no place in these tests.
func (place *place) create(t *testing.T, spec *corev1.PodSpec) error {
	t.Helper()
	_, err := place.client.CoreV1().Pods(place.namespace).Create(t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-"}, Spec: *spec}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsForbidden(err) {
		t.Fatalf("create a pod: %v", err)
	}
	return err
}

func createPriorityClasses(t *testing.T, client kubernetes.Interface, names ...string) {
	t.Helper()
	for i, name := range names {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: int32(i)}
		if _, err := client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		// Admission refuses pods of classes that it has not seen yet.
		eventually.Succeeds(t, "admission knows class "+name, func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *podOf(priority(name))}
			_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
	}
}

// secretCase is a namespace and a number of Secrets that shall be created in it.
type secretCase struct {
	quotas      []quotaOption
	secrets     int64
	wantRefused bool
}

var secretCases = map[string]secretCase{
	"an exact fit": {
		quotas: []quotaOption{hard("secrets", "3", "count/secrets", "3").used("secrets", "1", "count/secrets", "1")}, secrets: 2,
	},
	"too many by the old name": {
		quotas: []quotaOption{hard("secrets", "3").used("secrets", "2")}, secrets: 2, wantRefused: true,
	},
	"too many by the new name": {
		quotas: []quotaOption{hard("count/secrets", "3").used("count/secrets", "2")}, secrets: 2, wantRefused: true,
	},
	"a quota with a scope counts pods only": {
		quotas: []quotaOption{hard("count/secrets", "0").scopes(corev1.ResourceQuotaScopeNotTerminating)}, secrets: 1,
	},
	"a scope selector that selects nothing is no scope": {
		quotas: []quotaOption{hard("count/secrets", "0").selector()}, secrets: 1, wantRefused: true,
	},
}

func (tc *secretCase) run(t *testing.T, client kubernetes.Interface) {
	place := newPlace(t, client, tc.quotas, nil)
	prophecy := place.prophecy(t, &quota.Demand{
		Objects: map[corev1.ResourceName]int64{"secrets": tc.secrets, "count/secrets": tc.secrets},
	})
	var refusal error
	for range tc.secrets {
		_, err := client.CoreV1().Secrets(place.namespace).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "secret-"}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		refusal = err
	}
	if refused := refusal != nil; refused != tc.wantRefused {
		t.Errorf("the API server refused: %t, want %t (%v)", refused, tc.wantRefused, refusal)
	}
	if foretold := len(prophecy) > 0; foretold != (refusal != nil) {
		t.Errorf("foretold %q, but the API server said %v", prophecy, refusal)
	}
}

// quotaOption fills in a ResourceQuota.
type quotaOption func(*corev1.ResourceQuota)

func hard(amounts ...string) quotaOption {
	return func(quota *corev1.ResourceQuota) { quota.Spec.Hard = list(amounts...) }
}

// used is what the namespace uses already; what is not named is not used.
func (option quotaOption) used(amounts ...string) quotaOption {
	return option.and(func(quota *corev1.ResourceQuota) { quota.Status.Used = list(amounts...) })
}

func (option quotaOption) scopes(scopes ...corev1.ResourceQuotaScope) quotaOption {
	return option.and(func(quota *corev1.ResourceQuota) { quota.Spec.Scopes = scopes })
}

func (option quotaOption) selector(requirements ...corev1.ScopedResourceSelectorRequirement) quotaOption {
	return option.and(func(quota *corev1.ResourceQuota) {
		quota.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: requirements}
	})
}

// ofClass selects pods by their priority class.
func (option quotaOption) ofClass(operator corev1.ScopeSelectorOperator, classes ...string) quotaOption {
	return option.selector(corev1.ScopedResourceSelectorRequirement{
		ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: operator, Values: classes,
	})
}

func (option quotaOption) and(next quotaOption) quotaOption {
	return func(quota *corev1.ResourceQuota) {
		option(quota)
		next(quota)
	}
}

// list is made of names and amounts in turn.
func list(amounts ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return list
}

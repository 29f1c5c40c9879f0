// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestScopes(t *testing.T) {
	deadline := func(pod *corev1.PodSpec) { pod.ActiveDeadlineSeconds = new(int64(60)) }
	tests := map[string]struct {
		scope func(*corev1.ResourceQuota)
		pod   *corev1.PodSpec
		want  bool
	}{
		"no scope counts every pod": {scope: inScopes(), pod: podOf(), want: true},

		"BestEffort: nothing stated":                          {scope: inScopes("BestEffort"), pod: podOf(), want: true},
		"BestEffort: only GPUs":                               {scope: inScopes("BestEffort"), pod: podOf(requests("nvidia.com/gpu", "1")), want: true},
		"BestEffort: no CPU, said so":                         {scope: inScopes("BestEffort"), pod: podOf(requests("cpu", "0"), limits("memory", "0")), want: true},
		"BestEffort: a request of CPU":                        {scope: inScopes("BestEffort"), pod: podOf(requests("cpu", "1m")), want: false},
		"BestEffort: a limit of memory":                       {scope: inScopes("BestEffort"), pod: podOf(limits("memory", "1")), want: false},
		"BestEffort: a request in an init container":          {scope: inScopes("BestEffort"), pod: podOf(initContainer("init", list("cpu", "1"))), want: false},
		"BestEffort: a request in the second container":       {scope: inScopes("BestEffort"), pod: podOf(beside("logs", list("cpu", "1"))), want: false},
		"BestEffort: a request of the pod as a whole":         {scope: inScopes("BestEffort"), pod: podOf(whole(corev1.ResourceRequirements{Requests: list("cpu", "1")})), want: false},
		"BestEffort: pod-level resources replace containers'": {scope: inScopes("BestEffort"), pod: podOf(requests("cpu", "1"), whole(corev1.ResourceRequirements{Requests: list("cpu", "0")})), want: true},
		"BestEffort: empty pod-level resources":               {scope: inScopes("BestEffort"), pod: podOf(requests("cpu", "1"), whole(corev1.ResourceRequirements{})), want: false},
		"BestEffort: empty pod-level resources, no others":    {scope: inScopes("BestEffort"), pod: podOf(whole(corev1.ResourceRequirements{Requests: list()})), want: true},
		"NotBestEffort: nothing stated":                       {scope: inScopes("NotBestEffort"), pod: podOf(), want: false},
		"NotBestEffort: a request of CPU":                     {scope: inScopes("NotBestEffort"), pod: podOf(requests("cpu", "1")), want: true},
		"Terminating: a deadline":                             {scope: inScopes("Terminating"), pod: podOf(deadline), want: true},
		"Terminating: none":                                   {scope: inScopes("Terminating"), pod: podOf(), want: false},
		"NotTerminating: a deadline":                          {scope: inScopes("NotTerminating"), pod: podOf(deadline), want: false},
		"NotTerminating: none":                                {scope: inScopes("NotTerminating"), pod: podOf(), want: true},
		"PriorityClass: some class":                           {scope: inScopes("PriorityClass"), pod: podOf(priority("low")), want: true},
		"PriorityClass: none":                                 {scope: inScopes("PriorityClass"), pod: podOf(), want: false},
		"PriorityClass In: the class":                         {scope: ofClass("In", "low", "high"), pod: podOf(priority("high")), want: true},
		"PriorityClass In: another":                           {scope: ofClass("In", "high"), pod: podOf(priority("low")), want: false},
		"PriorityClass In: none":                              {scope: ofClass("In", "high"), pod: podOf(), want: false},
		"PriorityClass NotIn: the class":                      {scope: ofClass("NotIn", "low", "high"), pod: podOf(priority("high")), want: false},
		"PriorityClass NotIn: another":                        {scope: ofClass("NotIn", "high"), pod: podOf(priority("low")), want: true},
		"PriorityClass NotIn: none":                           {scope: ofClass("NotIn", "high"), pod: podOf(), want: true},
		"PriorityClass Exists: some class":                    {scope: ofClass("Exists"), pod: podOf(priority("low")), want: true},
		"PriorityClass Exists: none":                          {scope: ofClass("Exists"), pod: podOf(), want: false},
		"PriorityClass DoesNotExist: some class":              {scope: ofClass("DoesNotExist"), pod: podOf(priority("low")), want: false},
		"PriorityClass DoesNotExist: none":                    {scope: ofClass("DoesNotExist"), pod: podOf(), want: true},
		"PriorityClass by an operator that does not exist":    {scope: ofClass("Like", "low"), pod: podOf(priority("low")), want: false},
		"CrossNamespacePodAffinity: no affinity":              {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(), want: false},
		"CrossNamespacePodAffinity: near, required, own":      {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(near(corev1.PodAffinityTerm{})), want: false},
		"CrossNamespacePodAffinity: near, required, other":    {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(near(otherNamespace)), want: true},
		"CrossNamespacePodAffinity: near, required, selected": {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(near(selectedNamespaces)), want: true},
		"CrossNamespacePodAffinity: near, preferred, other":   {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(ratherNear(otherNamespace)), want: true},
		"CrossNamespacePodAffinity: far, required, other":     {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(far(otherNamespace)), want: true},
		"CrossNamespacePodAffinity: far, preferred, selected": {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(ratherFar(selectedNamespaces)), want: true},
		"CrossNamespacePodAffinity: far, preferred, own":      {scope: inScopes("CrossNamespacePodAffinity"), pod: podOf(ratherFar(corev1.PodAffinityTerm{})), want: false},
		"two scopes, both":                                    {scope: inScopes("NotTerminating", "NotBestEffort"), pod: podOf(requests("cpu", "1")), want: true},
		"two scopes, the first":                               {scope: inScopes("NotTerminating", "NotBestEffort"), pod: podOf(), want: false},
		"two scopes, the second":                              {scope: inScopes("NotTerminating", "NotBestEffort"), pod: podOf(requests("cpu", "1"), deadline), want: false},
		"a scope and a selector, both":                        {scope: both(inScopes("Terminating"), ofClass("In", "high")), pod: podOf(deadline, priority("high")), want: true},
		"a scope and a selector, only the scope":              {scope: both(inScopes("Terminating"), ofClass("In", "high")), pod: podOf(deadline), want: false},
		"a scope and a selector, only the selector":           {scope: both(inScopes("Terminating"), ofClass("In", "high")), pod: podOf(priority("high")), want: false},
		"a selector without a requirement counts every pod":   {scope: func(quota *corev1.ResourceQuota) { quota.Spec.ScopeSelector = &corev1.ScopeSelector{} }, pod: podOf(), want: true},
		"a scope of volumes counts no pod":                    {scope: inScopes(corev1.ResourceQuotaScopeVolumeAttributesClass), pod: podOf(), want: false},
		"a scope that is not known counts no pod":             {scope: inScopes("Weekend"), pod: podOf(), want: false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			quotas := []corev1.ResourceQuota{quotaOf("full", list("pods", "0"), nil, tc.scope)}
			asWorker := &Demand{Workers: Pods{Count: 1, Spec: tc.pod}}
			asLauncher := &Demand{Launcher: Pods{Count: 1, Spec: tc.pod}}
			if got := len(Shortages(asWorker, quotas)) > 0; got != tc.want {
				t.Errorf("the quota counts the worker: %t, want %t", got, tc.want)
			}
			if got := len(Shortages(asLauncher, quotas)) > 0; got != tc.want {
				t.Errorf("the quota counts the launcher: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestScopesTellLauncherAndWorkersApart(t *testing.T) {
	demand := workers(4, requests("cpu", "1")).withLauncher(requests("cpu", "2"), priority("high"))
	quotas := []corev1.ResourceQuota{
		quotaOf("high", list("cpu", "1"), nil, ofClass("In", "high")),
		quotaOf("others", list("requests.cpu", "4"), nil, ofClass("NotIn", "high")),
	}
	got := Shortages(demand, quotas)
	if len(got) != 1 || got[0].Quota != "high" || got[0].Requested.Value() != 2 || !got[0].PerWorker.IsZero() {
		t.Errorf("shortages are %+v, want 2 CPUs of the launcher in quota high and nothing else", got)
	}
}

func TestScopelessSelectorCountsObjects(t *testing.T) {
	demand := workers(1).withObjects(map[corev1.ResourceName]int64{"count/secrets": 1})
	quota := quotaOf("objects", list("count/secrets", "0"), nil)
	quota.Spec.ScopeSelector = &corev1.ScopeSelector{}
	if len(Shortages(demand, []corev1.ResourceQuota{quota})) == 0 {
		t.Error("a selector without a requirement was taken for a scope")
	}
}

func both(one, other func(*corev1.ResourceQuota)) func(*corev1.ResourceQuota) {
	return func(quota *corev1.ResourceQuota) {
		one(quota)
		other(quota)
	}
}

var (
	otherNamespace     = corev1.PodAffinityTerm{Namespaces: []string{"other"}}
	selectedNamespaces = corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}
)

func near(term corev1.PodAffinityTerm) podOption {
	return func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	}
}

func ratherNear(term corev1.PodAffinityTerm) podOption {
	return func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}}}
	}
}

func far(term corev1.PodAffinityTerm) podOption {
	return func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	}
}

func ratherFar(term corev1.PodAffinityTerm) podOption {
	return func(pod *corev1.PodSpec) {
		pod.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}}}
	}
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// limited has a quota in the namespace.
func limited(hard, used corev1.ResourceList) func(*Facts) {
	return func(facts *Facts) {
		facts.Quotas.Value = append(facts.Quotas.Value, corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "quota"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used},
		})
	}
}

func withoutPods(facts *Facts) { facts.Pods.Value = nil }

func TestQuotas(t *testing.T) {
	table(t, quotas, pending, map[string]tableCase{
		"no quota":                       {change: withoutPods},
		"a quota with room":              {change: all(withoutPods, limited(amounts("requests.cpu", "9"), nil))},
		"a quota without room":           {change: all(withoutPods, limited(amounts("requests.cpu", "9"), amounts("requests.cpu", "1"))), want: []string{"certain: The namespace's quota is too small"}, fix: "kubectl describe resourcequota -n team"},
		"pods that are there do not ask": {change: limited(amounts("requests.cpu", "9"), amounts("requests.cpu", "9"))},
		"one worker is missing":          {change: all(func(facts *Facts) { facts.Pods.Value = facts.Pods.Value[:2] }, limited(amounts("pods", "2"), amounts("pods", "2"))), want: []string{"certain: The namespace's quota is too small"}},
		"a job that failed for it":       {change: all(fails(training.FailureResourceQuota, "q"), limited(amounts("pods", "2"), nil)), want: []string{"likely: The namespace's quota is too small"}},
		"a job that failed otherwise":    {change: all(fails(training.FailureTraining, "t"), limited(amounts("pods", "2"), nil)), want: []string{"note: The namespace's quota is too small"}},
		"a job that succeeded":           {change: all(succeeds, withoutPods, limited(amounts("pods", "0"), nil))},
		"quotas that may not be listed":  {change: func(facts *Facts) { facts.Quotas.Unknown = "may not list resourcequotas" }, want: []string{"not known: Quota"}},
	})
	table(t, quotas, submitted, map[string]tableCase{
		"fewer workers would fit": {change: all(func(facts *Facts) { facts.Job.Worker.Replicas = 4 }, limited(amounts("requests.cpu", "13"), nil)), want: []string{"certain: The namespace's quota is too small"}, fix: "Use 3 workers"},
		"none would fit":          {change: limited(amounts("requests.cpu", "1"), nil), want: []string{"certain: The namespace's quota is too small"}, fix: "Wait for other jobs"},
		"of a namespace alone":    {change: all(func(facts *Facts) { facts.Job, facts.Name = nil, "" }, limited(amounts("pods", "2", "services", "0"), amounts("pods", "2"))), want: []string{"certain: Quota quota is used up"}},
		"of one that has room":    {change: all(func(facts *Facts) { facts.Job, facts.Name = nil, "" }, limited(amounts("pods", "2"), amounts("pods", "1")))},
	})
}

func cordoned(node *corev1.Node) { node.Spec.Unschedulable = true }

func inCluster(nodes ...corev1.Node) func(*Facts) {
	return func(facts *Facts) { facts.Nodes.Value = nodes }
}

func workersAsk(pairs ...string) func(*Facts) {
	return func(facts *Facts) {
		resources := corev1.ResourceRequirements{Requests: amounts(pairs...), Limits: amounts(pairs...)}
		facts.Job.Worker.Template.Spec.Containers[0].Resources = resources
		for i := range facts.Pods.Value {
			if facts.Pods.Value[i].Labels[training.LabelReplicaType] == training.RoleWorker {
				facts.Pods.Value[i].Spec.Containers[0].Resources = resources
			}
		}
	}
}

func TestNodes(t *testing.T) {
	const few = "Too few nodes fit the workers"
	tainted := func(node *corev1.Node) {
		node.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	table(t, nodesThatFit, pending, map[string]tableCase{
		"two nodes with room":         {},
		"one node with room for both": {change: inCluster(node("a"))},
		"no node":                     {change: inCluster(), want: []string{"certain: " + few}},
		"nodes that are too small":    {change: workersAsk("cpu", "17"), want: []string{"certain: " + few}, fix: "no more for a worker than one node has"},
		"nodes that are cordoned":     {change: inCluster(node("a", cordoned), node("b", cordoned)), want: []string{"certain: " + few}, fix: "kubectl uncordon"},
		"nodes with a taint":          {change: inCluster(node("a", tainted)), want: []string{"certain: " + few}, fix: "toleration"},
		"nodes of another kind":       {change: func(facts *Facts) { facts.Pods.Value[1].Spec.NodeSelector = map[string]string{"zone": "a"} }, want: []string{"certain: " + few}, fix: "nodeSelector"},
		"a node that is full":         {change: all(inCluster(node("a")), func(facts *Facts) { facts.Used.Value["a"] = amounts("cpu", "10") }), want: []string{"likely: " + few}, fix: "wait for other jobs"},
		// Labels, taints and resources may have any name.
		"a selector like a taint":      {change: func(facts *Facts) { facts.Pods.Value[1].Spec.NodeSelector = map[string]string{"taint": "cordoned"} }, want: []string{"certain: " + few}, fix: "nodeSelector"},
		"a resource like a taint":      {change: workersAsk("example.com/taint", "1"), want: []string{"certain: " + few}, fix: "no more for a worker than one node has"},
		"room for one":                 {change: all(inCluster(node("a"), node("b", cordoned)), workersAsk("cpu", "12")), want: []string{"likely: " + few}},
		"a cluster that makes nodes":   {change: all(inCluster(), func(facts *Facts) { facts.Autoscaled = true }), want: []string{"possible: " + few}},
		"workers that have their node": {change: all(inCluster(), func(facts *Facts) { facts.Pods.Value[1].Spec.NodeName, facts.Pods.Value[2].Spec.NodeName = "a", "b" })},
		"a job that runs":              {change: all(inCluster(), runs)},
		"a job that timed out":         {change: all(inCluster(), fails(training.FailureGangSchedulingTimeout, "late")), want: []string{"likely: " + few}},
		"a job that succeeded":         {change: all(inCluster(), succeeds)},
		"nodes that may not be listed": {change: func(facts *Facts) { facts.Nodes.Unknown = "may not list nodes" }, want: []string{"not known: Nodes that fit"}},
		"a job that nothing is known of": {change: func(facts *Facts) {
			facts.Job, facts.Pods.Value = nil, nil
		}},
		"of a launcher alone": {change: all(inCluster(), func(facts *Facts) { facts.Job.Worker.Replicas, facts.Pods.Value = 0, facts.Pods.Value[:1] }), want: []string{"certain: " + few}},
	})
	facts := pending(kinds()[job.KindMPIJob], inCluster(node("a", cordoned), node("b", tainted), node("c", cordoned)), func(facts *Facts) { facts.Used.Unknown = "may not list pods of all namespaces" })
	want := "0 of 3 nodes can run a worker, which requests 4 cpu, 8Gi memory; 0 of 2 workers can be scheduled. Other nodes: cordoned (2 nodes); taint gpu:NoSchedule is not tolerated (1 node). The used resources of nodes are not known: may not list pods of all namespaces."
	if got := nodesThatFit(facts)[0].Cause; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestGPUTypes(t *testing.T) {
	has := func(name string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Status.Allocatable[corev1.ResourceName(name)] = amounts("x", "8")["x"] }
	}
	table(t, gpuTypes, submitted, map[string]tableCase{
		"no GPU is asked for":          {},
		"a GPU that a node has":        {change: all(workersAsk("nvidia.com/gpu", "1"), inCluster(node("a"), node("b", has("nvidia.com/gpu"))))},
		"a GPU that may come":          {change: all(workersAsk("amd.com/gpu", "1"), func(facts *Facts) { facts.Autoscaled = true }), want: []string{"possible: No node has amd.com/gpu"}},
		"a GPU of another vendor":      {change: all(workersAsk("amd.com/gpu", "1"), inCluster(node("b", has("nvidia.com/gpu")))), want: []string{"certain: No node has amd.com/gpu"}, fix: "kubectl describe nodes"},
		"nodes that may not be listed": {change: all(workersAsk("amd.com/gpu", "1"), func(facts *Facts) { facts.Nodes.Unknown = "may not list nodes" }), want: []string{"not known: GPU type"}},
	})
}

func TestStorage(t *testing.T) {
	claim := func(phase corev1.PersistentVolumeClaimPhase, modes ...corev1.PersistentVolumeAccessMode) func(*Facts) {
		return func(facts *Facts) {
			facts.Claims = map[string]Known[*corev1.PersistentVolumeClaim]{"data": {Value: &corev1.PersistentVolumeClaim{
				Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase},
			}}}
		}
	}
	missing := func(facts *Facts) { facts.Claims = map[string]Known[*corev1.PersistentVolumeClaim]{"data": {}} }
	table(t, storage, pending, map[string]tableCase{
		"no claim":                      {},
		"a claim for many":              {change: claim(corev1.ClaimBound, corev1.ReadWriteMany)},
		"a claim for one node":          {change: claim(corev1.ClaimBound, corev1.ReadWriteOnce), want: []string{"possible: PersistentVolumeClaim data can be mounted on one node only"}, fix: "ReadWriteMany"},
		"a claim for the only node":     {change: all(claim(corev1.ClaimBound, corev1.ReadWriteOnce), inCluster(node("a")))},
		"a claim that is pending":       {change: claim(corev1.ClaimPending), want: []string{"possible: PersistentVolumeClaim data has no volume yet"}, fix: "kubectl describe pvc data -n team"},
		"a claim that lost its volume":  {change: claim(corev1.ClaimLost), want: []string{"certain: PersistentVolumeClaim data has lost its volume"}},
		"a claim that is missing":       {change: missing, want: []string{"certain: PersistentVolumeClaim data is missing"}, fix: "kubectl get pvc -n team"},
		"a claim of a job that runs":    {change: all(missing, runs), want: []string{"note: PersistentVolumeClaim data is missing"}},
		"a claim of a job that is done": {change: all(missing, succeeds)},
		"a claim that may not be read": {change: func(facts *Facts) {
			facts.Claims = map[string]Known[*corev1.PersistentVolumeClaim]{"data": {Unknown: "may not get"}}
		}, want: []string{"not known: PersistentVolumeClaim data"}},
		"a class that is there":        {change: func(facts *Facts) { facts.StorageClasses = map[string]Known[bool]{"fast": {Value: true}} }},
		"a class that is missing":      {change: func(facts *Facts) { facts.StorageClasses = map[string]Known[bool]{"fast": {}} }, want: []string{"certain: StorageClass fast is missing"}, fix: "kubectl get storageclass"},
		"a class that may not be read": {change: func(facts *Facts) { facts.StorageClasses = map[string]Known[bool]{"fast": {Unknown: "may not get"}} }, want: []string{"not known: StorageClass fast"}},
	})
}

// The claim that the operator makes is not missed before it is made.
func TestClaimOfTheInitializer(t *testing.T) {
	facts := submitted(kinds()[job.KindTrainJob], func(facts *Facts) { facts.Job.Initializer = &job.Initializer{} })
	if names := facts.claimNames(); len(names) != 1 || names[0] != "job-workspace" {
		t.Errorf("the claims are %v", names)
	}
	facts.Claims = map[string]Known[*corev1.PersistentVolumeClaim]{"job-workspace": {}}
	if findings := storage(facts); len(findings) > 0 {
		t.Errorf("%+v", findings)
	}
}

func labelled(key, value string) func(*Facts) {
	return func(facts *Facts) { facts.NamespaceObject.Value.Labels[key] = value }
}

func TestPodSecurity(t *testing.T) {
	const enforce = "pod-security.kubernetes.io/enforce"
	onHost := func(facts *Facts) { facts.Job.Worker.Template.Spec.HostNetwork = true }
	table(t, podSecurity, pending, map[string]tableCase{
		"pods that are there were taken": {change: all(onHost, labelled(enforce, "baseline"))},
		"a namespace that says nothing":  {change: all(onHost, withoutPods)},
		"pods that violate it":           {change: all(onHost, withoutPods, labelled(enforce, "baseline")), want: []string{`likely: The worker violates PodSecurity "baseline:latest"`}, fix: "securityContext"},
		"a namespace that is not known":  {change: func(facts *Facts) { facts.NamespaceObject = Known[*corev1.Namespace]{Unknown: "may not get"} }, want: []string{"not known: PodSecurity level"}},
		"a job that succeeded":           {change: all(onHost, withoutPods, succeeds, labelled(enforce, "baseline"))},
	})
}

func TestIstio(t *testing.T) {
	sidecar := func(facts *Facts) {
		facts.Pods.Value[1].Spec.Containers = append(facts.Pods.Value[1].Spec.Containers, corev1.Container{Name: "istio-proxy"})
	}
	native := func(facts *Facts) {
		facts.Pods.Value[1].Spec.InitContainers = append(facts.Pods.Value[1].Spec.InitContainers, corev1.Container{Name: "istio-proxy"})
	}
	table(t, istio, pending, map[string]tableCase{
		"no Istio":                      {},
		"injection that is off":         {change: labelled("istio-injection", "disabled")},
		"injection":                     {change: labelled("istio-injection", "enabled"), want: []string{"note: Istio injects sidecars in this namespace"}},
		"injection by revision":         {change: labelled("istio.io/rev", "1-24"), want: []string{"note: Istio injects sidecars in this namespace"}},
		"a sidecar":                     {change: sidecar, want: []string{"likely: Pods have an Istio sidecar"}, fix: "istio-injection-"},
		"a native sidecar":              {change: native, want: []string{"likely: Pods have an Istio sidecar"}},
		"a sidecar of a job that runs":  {change: all(runs, sidecar), want: []string{"note: Pods have an Istio sidecar"}},
		"a namespace that is not known": {change: func(facts *Facts) { facts.NamespaceObject = Known[*corev1.Namespace]{Unknown: "may not get"} }, want: []string{"not known: Istio injection"}},
	})
}

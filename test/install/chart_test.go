// SPDX-License-Identifier: Apache-2.0

package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trireme-mpi/trireme/internal/testing/eventually"
	"github.com/trireme-mpi/trireme/internal/testing/localcluster"
)

// TestChart is the life of a release, from the first installation to the last trace.
func TestChart(t *testing.T) {
	images := pushImages(t)
	newNamespace(t, "trireme-system")
	newNamespace(t, "team")
	before := objects(t)
	for _, step := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"install", func(t *testing.T) {
			run(t, "helm install trireme charts/trireme --namespace trireme-system --wait --timeout 5m "+images.values())
			wantPods(t, "operator", images["operator"])
			wantPods(t, "server", images["server"])
		}},
		{"helm test", runHelmTest},
		{"private image", func(t *testing.T) { runPrivateJob(t, images["agent"]) }},
		{"TrainJob", runTrainJob},
		{"upgrade and rollback", func(t *testing.T) { upgradeAndRollBack(t, images) }},
		{"uninstall with an unfinished job", refuseUninstall},
		{"uninstall", uninstall},
		{"nothing left", func(t *testing.T) { wantOnlyCRDs(t, before) }},
	} {
		if !t.Run(step.name, step.do) {
			return // the next steps need this one
		}
	}
}

// newNamespace has the login of the registry, as an administrator creates it.
func newNamespace(t *testing.T, name string) {
	t.Helper()
	run(t, "kubectl create namespace "+name)
	run(t, "kubectl label namespace "+name+" pod-security.kubernetes.io/enforce=restricted")
	run(t, "kubectl wait --for=create serviceaccount/default --timeout=60s --namespace "+name)
	run(t, `kubectl create secret generic registry --type=kubernetes.io/dockerconfigjson --from-file=.dockerconfigjson="$DOCKER_CONFIG/config.json" --namespace `+name)
}

// objects lists everything that is stored on the cluster, except what comes and goes by
// itself.
func objects(t *testing.T) []string {
	t.Helper()
	kinds := run(t, `kubectl api-resources --verbs=list -o name | grep --invert-match --line-regexp --extended-regexp 'events(\.events\.k8s\.io)?|leases\.coordination\.k8s\.io' | paste -sd,`)
	list := run(t, "kubectl get "+kinds+` --all-namespaces --ignore-not-found -o go-template='{{range .items}}{{.kind}} {{with .metadata.namespace}}{{.}}/{{end}}{{.metadata.name}}{{"\n"}}{{end}}'`)
	all := strings.Split(list, "\n")
	slices.Sort(all)
	return slices.Compact(all)
}

// wantPods waits until two pods of a part are ready and run the image with this digest, and
// no others exist.
func wantPods(t *testing.T, part, digest string) {
	t.Helper()
	eventually.Succeeds(t, "two pods of the "+part+" run "+digest, func() error {
		pods, err := localcluster.Shell(clients + "kubectl get pods --namespace trireme-system --selector app.kubernetes.io/name=trireme,app.kubernetes.io/component=" + part +
			` -o jsonpath='{range .items[*]}{.status.containerStatuses[*].ready} {.status.containerStatuses[*].imageID}{"\n"}{end}'`)
		isRight := func(pod string) bool { return strings.HasPrefix(pod, "true ") && strings.HasSuffix(pod, "@"+digest) }
		if lines := strings.Split(strings.TrimSpace(pods), "\n"); err != nil || len(lines) != 2 || !isRight(lines[0]) || !isRight(lines[1]) {
			return fmt.Errorf("%v, ready and images:\n%s", err, pods)
		}
		return nil
	})
}

func runHelmTest(t *testing.T) {
	output := run(t, "helm test trireme --namespace trireme-system --timeout 5m")
	for _, want := range []string{"rank 0 of 2", "rank 1 of 2"} {
		if !strings.Contains(output, want) {
			t.Errorf("the job of helm test does not print %q:\n%s", want, output)
		}
	}
	run(t, "kubectl wait --for=delete --timeout=120s --namespace trireme-system mpijob/trireme-test")
}

// job is an MPIJob of a private image without a pull secret of its own. Its ranks wait for
// a file.
const job = `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: NAME, namespace: team}
spec:
  runPolicy: {cleanPodPolicy: Running}
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: launcher
            image: IMAGE
            command: [mpirun, -np, "2", sh, -c, 'echo "rank $OMPI_COMM_WORLD_RANK is up"; until [ -e /tmp/end ]; do sleep 0.2; done; echo "rank $OMPI_COMM_WORLD_RANK ends"']
            resources: {requests: {cpu: 10m, memory: 64Mi}}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: worker
            image: IMAGE
            resources: {requests: {memory: 1Gi}}
`

// startJob returns when all ranks of the job are running.
func startJob(t *testing.T, name string) {
	t.Helper()
	manifest := strings.ReplaceAll(job, "NAME", name)
	run(t, "kubectl apply --filename - <<EOF\n"+strings.ReplaceAll(strings.ReplaceAll(manifest, "$", `\$`), "IMAGE", "$PRIVATE_REGISTRY/trireme/openmpi:5")+"EOF")
	waitForRanks(t, name, 2)
}

func waitForRanks(t *testing.T, job string, count int) {
	t.Helper()
	eventually.Succeeds(t, "all ranks of "+job+" are running", func() error {
		log, err := localcluster.Shell(clients + "kubectl logs --namespace team --tail=-1 --selector training.kubeflow.org/job-role=launcher,training.kubeflow.org/job-name=" + job)
		if err != nil || strings.Count(log, " is up") != count {
			return fmt.Errorf("%v: %s", err, log)
		}
		return nil
	})
}

// endJob lets the ranks end, and waits until the job has succeeded.
func endJob(t *testing.T, name string) {
	t.Helper()
	// The launcher ends with the first worker's rank, so that worker gets the file last.
	for _, worker := range []int{1, 0} {
		run(t, fmt.Sprintf("kubectl exec --namespace team %s-worker-%d -- touch /tmp/end", name, worker))
	}
	run(t, "kubectl wait --for=condition=Succeeded --timeout=120s --namespace team mpijob/"+name)
}

// runPrivateJob runs a job whose image and agent come from the private registry.
func runPrivateJob(t *testing.T, agent string) {
	startJob(t, "private")
	specs := run(t, "kubectl get pods --namespace team --selector training.kubeflow.org/job-name=private -o jsonpath='{range .items[*]}{.spec}{\"\\n\"}{end}'")
	for pod := range strings.Lines(specs) {
		if !strings.Contains(pod, "/trireme/mpi-agent@"+agent) {
			t.Errorf("a pod of the job does not have the agent %s:\n%s", agent, pod)
		}
	}
	secrets := run(t, "kubectl get pods --namespace team --selector training.kubeflow.org/job-name=private -o jsonpath='{range .items[*]}{.spec.imagePullSecrets[*].name}{\"\\n\"}{end}'")
	if diff := cmp.Diff("registry\nregistry\nregistry", secrets); diff != "" {
		t.Errorf("pull secrets of the job's pods (-want +got):\n%s", diff)
	}
	endJob(t, "private")
}

// trainJob leaves a snapshot of its runtime. It trains until the file exists.
const trainJob = `
apiVersion: kubeflow.org/v2alpha1
kind: TrainJob
metadata: {name: NAME, namespace: team}
spec:
  runtimeRef: {apiGroup: kubeflow.org, kind: ClusterTrainingRuntime, name: mpi-openmpi-cpu}
  trainer:
    numNodes: 1
    slotsPerWorker: 1
    image: $PRIVATE_REGISTRY/trireme/openmpi:5
    command: [sh, -c, 'echo "rank 0 is up"; until [ -e /tmp/end ]; do sleep 0.2; done']
    resourcesPerNode: {requests: {cpu: "1", memory: 1Gi}, limits: {cpu: "1", memory: 1Gi}}
  launcher:
    resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {cpu: "1", memory: 256Mi}}
`

// startTrainJob returns when its rank is running.
func startTrainJob(t *testing.T, name string) {
	t.Helper()
	run(t, "kubectl apply --filename - <<EOF\n"+strings.ReplaceAll(trainJob, "NAME", name)+"EOF")
	waitForRanks(t, name, 1)
}

func endTrainJob(t *testing.T, name string) {
	t.Helper()
	run(t, `kubectl exec --namespace team "$(kubectl get pods --namespace team --output name --selector training.kubeflow.org/job-role=worker,training.kubeflow.org/job-name=`+name+`)" -- touch /tmp/end`)
	run(t, "kubectl wait --for=jsonpath={.status.phase}=Succeeded --timeout=120s --namespace team trainjob/"+name)
}

func runTrainJob(t *testing.T) {
	startTrainJob(t, "trained")
	endTrainJob(t, "trained")
	if snapshots := run(t, "kubectl get controllerrevisions --namespace team -o name"); !strings.Contains(snapshots, "/trireme-runtime-") {
		t.Errorf("the job has no snapshot of its runtime: %q", snapshots)
	}
}

// upgradeAndRollBack replaces the operator twice, while a job of each kind is running. The
// newer release also has a namespace for a team.
func upgradeAndRollBack(t *testing.T, images release) {
	startJob(t, "steady")
	startTrainJob(t, "steady-too")
	started := podsOf(t, "steady", "steady-too")
	newer := images.newer(t)
	run(t, "helm upgrade trireme charts/trireme --namespace trireme-system --wait --timeout 5m "+newer.values()+
		" --set namespaces[0].name=prepared --set namespaces[0].editors={group:vision} --set namespaces[0].pullSecret=team/registry --set-string namespaces[0].quota.pods=20")
	wantPods(t, "operator", newer["operator"])
	if diff := cmp.Diff(started, podsOf(t, "steady", "steady-too")); diff != "" {
		t.Errorf("the upgrade has changed the pods of running jobs (-before +after):\n%s", diff)
	}
	wantPreparedNamespace(t)
	run(t, "helm rollback trireme --namespace trireme-system --wait --timeout 5m")
	wantPods(t, "operator", images["operator"])
	if diff := cmp.Diff(started, podsOf(t, "steady", "steady-too")); diff != "" {
		t.Errorf("the rollback has changed the pods of running jobs (-before +after):\n%s", diff)
	}
	endJob(t, "steady")
	endTrainJob(t, "steady-too")
}

// wantPreparedNamespace checks what the chart's setup has created for a team, and deletes
// the namespace, which is the administrators' own.
func wantPreparedNamespace(t *testing.T) {
	t.Helper()
	found := run(t, "kubectl get resourcequotas,limitranges,networkpolicies,rolebindings,secrets --namespace prepared --output name")
	for _, want := range []string{"resourcequota/", "limitrange/", "networkpolicy.networking.k8s.io/", "rolebinding.rbac.authorization.k8s.io/", "secret/"} {
		if !strings.Contains(found, want) {
			t.Errorf("the prepared namespace lacks a %s:\n%s", strings.TrimSuffix(want, "/"), found)
		}
	}
	if answer, err := localcluster.Shell(clients + "kubectl auth can-i create mpijobs.kubeflow.org --namespace prepared --as somebody --as-group vision"); err != nil {
		t.Errorf("the editors of the prepared namespace cannot create jobs: %s", answer)
	}
	run(t, "kubectl delete namespace prepared --timeout=60s")
}

// podsOf are names, UIDs and restarts of the jobs' pods.
func podsOf(t *testing.T, jobs ...string) string {
	t.Helper()
	return run(t, "kubectl get pods --namespace team --selector 'training.kubeflow.org/job-name in ("+strings.Join(jobs, ",")+`)'`+
		` --no-headers -o custom-columns=NAME:.metadata.name,UID:.metadata.uid,RESTARTS:.status.containerStatuses[*].restartCount`)
}

func refuseUninstall(t *testing.T) {
	startJob(t, "unfinished")
	started := podsOf(t, "unfinished")
	output, err := localcluster.Shell(clients + "helm uninstall trireme --namespace trireme-system --wait --timeout 5m")
	if err == nil {
		t.Fatalf("helm uninstall does not wait for an unfinished job:\n%s", output)
	}
	for _, want := range []string{"1 jobs are not finished: MPIJob team/unfinished", "Wait until they have finished, or delete them"} {
		if !strings.Contains(output, want) {
			t.Errorf("helm uninstall does not say %q:\n%s", want, output)
		}
	}
	run(t, "kubectl rollout status deployment/trireme-operator --namespace trireme-system --timeout=60s")
	if diff := cmp.Diff(started, podsOf(t, "unfinished")); diff != "" {
		t.Errorf("the refused uninstall has changed the pods of a running job (-before +after):\n%s", diff)
	}
	// To keep the release, roll back to its current revision, as the guide says.
	run(t, `helm rollback trireme "$(helm history trireme --namespace trireme-system --max 1 -o yaml | sed -n 's/.*revision: //p')" --namespace trireme-system --wait --timeout 5m`)
	if status := run(t, "helm status trireme --namespace trireme-system -o yaml"); !strings.Contains(status, "status: deployed") {
		t.Errorf("after the rollback, the release is:\n%s", status)
	}
	endJob(t, "unfinished")
}

func uninstall(t *testing.T) {
	run(t, "helm uninstall trireme --namespace trireme-system --wait --timeout 5m")
	states := run(t, `kubectl get mpijobs --namespace team --no-headers -o custom-columns=NAME:.metadata.name,SUCCEEDED:'.status.conditions[?(@.type=="Succeeded")].status'`)
	if got := strings.Fields(states); !slices.Equal(got, []string{"private", "True", "steady", "True", "unfinished", "True"}) {
		t.Errorf("jobs after the uninstall: %v", got)
	}
}

// wantOnlyCRDs deletes the jobs, which works without the operator, and compares what is
// stored with what was stored before the installation.
func wantOnlyCRDs(t *testing.T, before []string) {
	run(t, "kubectl delete mpijobs,trainjobs --all --namespace team --cascade=foreground --timeout=60s")
	// Helm waits for its own objects, not for the pods of Deployments.
	run(t, "kubectl wait --for=delete pods --all --timeout=60s --namespace trireme-system")
	left := slices.DeleteFunc(objects(t), func(object string) bool { return slices.Contains(before, object) })
	want := []string{
		"APIService v2alpha1.kubeflow.org",
		"APIService v2beta1.kubeflow.org",
		"CustomResourceDefinition clustertrainingruntimes.kubeflow.org",
		"CustomResourceDefinition mpijobs.kubeflow.org",
		"CustomResourceDefinition trainingruntimes.kubeflow.org",
		"CustomResourceDefinition trainjobs.kubeflow.org",
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("objects after the uninstall (-want +got):\n%s", diff)
	}
}

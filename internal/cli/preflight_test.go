// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/internal/engine/quota"
	"github.com/trireme-mpi/trireme/internal/engine/validation"
)

const (
	goodJob = `
apiVersion: kubeflow.org/v2alpha1
kind: TrainJob
metadata: {name: mnist}
spec:
  runtimeRef: {kind: ClusterTrainingRuntime, name: mpi-openmpi-cpu}
  trainer: {image: "quay.io/team/train:7", command: [python, train.py]}
`
	badJob = `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: solve, labels: {kueue.x-k8s.io/queue-name: team-a}}
spec:
  slotsPerWorker: 4
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: launcher, image: "quay.io/team/train:7", command: [mpirun, ./solve]}]}}
    Worker:
      replicas: 2
      template:
        spec:
          imagePullSecrets: [{name: login}]
          containers:
          - {name: worker, image: "quay.io/team/hpc:2", resources: {limits: {nvidia.com/gpu: 2, cpu: 4, memory: 8Gi}}, volumeMounts: [{name: data, mountPath: /data}]}
          volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
)

// refusing is a cluster that refuses every job.
func refusing(faults ...*field.Error) func(client.WithWatch) client.WithWatch {
	return func(api client.WithWatch) client.WithWatch {
		return interceptor.NewClient(plainCluster(api), interceptor.Funcs{Create: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if _, asks := object.(*authorizationv1.SelfSubjectAccessReview); asks {
				return api.Create(ctx, object, options...)
			}
			return (&validation.Findings{Errors: faults}).Invalid(schema.GroupKind{Kind: "TrainJob"}, object.GetName())
		}})
	}
}

func quotaOf(pods string) *corev1.ResourceQuota {
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
}

func TestPreflight(t *testing.T) {
	cluster := place("node-1", "node-2")
	full := slices.Concat(cluster, []client.Object{quotaOf("2")})
	closed := slices.Concat(cluster, []client.Object{denyAll()})
	noRoom := refusing(field.Forbidden(field.NewPath("spec", "trainer", "numNodes"), "Insufficient namespace quota: requested 3 pods, available 2 pods").WithOrigin(string(quota.CauseExceeded)))
	with := func(job string, on terminal, answers func(client.WithWatch) client.WithWatch, objects []client.Object) session {
		return session{stdin: job, terminal: on, objects: objects, answers: answers}
	}
	checkGolden(t, "preflight", map[string]struct {
		session
		line string
	}{
		"good":              {with(goodJob, noTerminal, plainCluster, cluster), "preflight -f -"},
		"good json":         {with(goodJob, noTerminal, plainCluster, cluster), "preflight -f - -o json"},
		"bad":               {with(badJob, noTerminal, plainCluster, closed), "preflight -f -"},
		"bad narrow":        {with(badJob, narrow, plainCluster, closed), "preflight -f -"},
		"bad wide":          {with(badJob, wide, plainCluster, closed), "preflight -f -"},
		"bad colourful":     {with(badJob, colourful, plainCluster, closed), "preflight -f -"},
		"bad yaml":          {with(badJob, noTerminal, plainCluster, closed), "preflight -f - -o yaml"},
		"quota alone":       {with(goodJob, noTerminal, noRoom, full), "preflight -f -"},
		"quota and more":    {with(goodJob, noTerminal, noRoom, slices.Concat(full, []client.Object{denyAll()})), "preflight -f -"},
		"refused":           {with(goodJob, noTerminal, refusing(field.Invalid(field.NewPath("spec", "trainer"), 1, "is wrong")), cluster), "preflight -f -"},
		"runtime missing":   {with(goodJob, noTerminal, plainCluster, slices.DeleteFunc(slices.Clone(cluster), func(object client.Object) bool { return object.GetName() == "mpi-openmpi-cpu" })), "preflight -f -"},
		"forbidden":         {with(goodJob, noTerminal, forbidden(), cluster), "preflight -f -"},
		"namespace":         {with("", noTerminal, plainCluster, cluster), "preflight"},
		"namespace missing": {with("", noTerminal, plainCluster, cluster), "preflight -n nowhere"},
		"namespace closed":  {with("", narrow, plainCluster, slices.Concat(closed, []client.Object{quotaOf("0")})), "preflight"},
		"not yaml":          {with("a: [", noTerminal, plainCluster, cluster), "preflight -f -"},
		"two documents":     {with(goodJob+"---"+goodJob, noTerminal, plainCluster, cluster), "preflight -f -"},
		"unknown field":     {with(goodJob+"  nodes: 3\n", noTerminal, plainCluster, cluster), "preflight -f -"},
		"no job":            {with("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", noTerminal, plainCluster, cluster), "preflight -f -"},
		"no name":           {with("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nspec: {mpiReplicaSpecs: {}}\n", noTerminal, plainCluster, cluster), "preflight -f -"},
		"no file":           {with("", noTerminal, plainCluster, cluster), "preflight -f nothing.yaml"},
		"foreign namespace": {with("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a, namespace: b}\nspec: {mpiReplicaSpecs: {}}\n", noTerminal, plainCluster, cluster), "preflight -f - -n c"},
		"unknown output":    {with("", noTerminal, plainCluster, cluster), "preflight -o wide"},
	})
}

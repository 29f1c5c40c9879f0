// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/api/v2beta1"
)

// someJobs are jobs of both kinds in every state.
func someJobs() []client.Object {
	elsewhere := func(trainJob *v2alpha1.TrainJob) { trainJob.Namespace = "research" }
	suspended := func(mpiJob *v2beta1.MPIJob) { mpiJob.Spec.RunPolicy.Suspend = new(true) }
	return []client.Object{
		runtimeNamed("mpi-openmpi-cpu"), trainJobNamed("digits", running), trainJobNamed("bert", waiting), trainJobNamed("later", queued), trainJobNamed("done", succeeded),
		trainJobNamed("orphan", func(trainJob *v2alpha1.TrainJob) {
			trainJob.Spec.RuntimeRef.Name, trainJob.Spec.Trainer.NumNodes = "gone", nil
		}),
		trainJobNamed("other", running, elsewhere), mpiJobNamed("solve", failed), mpiJobNamed("paused", suspended), mpiJobNamed("new"),
	}
}

func TestLists(t *testing.T) {
	with := func(terminal terminal) session { return session{terminal: terminal, objects: someJobs()} }
	checkGolden(t, "list", map[string]struct {
		session
		line string
	}{
		"trainjobs":                  {with(noTerminal), "trainjob get"},
		"mpijobs":                    {with(noTerminal), "mpijob list"},
		"training spelling":          {with(noTerminal), "training list mpijob"},
		"both kinds":                 {with(noTerminal), "training list"},
		"wide":                       {with(wide), "training list -o wide"},
		"narrow":                     {with(narrow), "training list"},
		"all namespaces":             {with(noTerminal), "training list -A"},
		"one":                        {with(noTerminal), "trainjob get digits"},
		"several":                    {with(noTerminal), "trainjob get digits bert"},
		"known and unknown":          {with(noTerminal), "trainjob get digits nope bert"},
		"known and unknown, by name": {with(noTerminal), "trainjob get digits nope -o name"},
		"unknown jobs":               {with(noTerminal), "trainjob get nope neither"},
		"unknown jobs as json":       {with(noTerminal), "trainjob get nope neither -o json"},
		"sorted":                     {with(noTerminal), "training list --sort-by {.metadata.creationTimestamp}"},
		"sorted names":               {with(noTerminal), "trainjob get --sort-by .status.phase -o name"},
		"selector":                   {with(noTerminal), "trainjob get -l kueue.x-k8s.io/queue-name=team-a"},
		"status":                     {with(noTerminal), "training list --status running"},
		"restarting":                 {session{objects: []client.Object{trainJobNamed("again", restarting), trainJobNamed("bert", waiting)}}, "trainjob get --status restarting"},
		"names":                      {with(noTerminal), "training list -o name"},
		"no headers":                 {with(noTerminal), "trainjob get --no-headers"},
		"json":                       {with(noTerminal), "mpijob get solve -o json"},
		"yaml":                       {with(noTerminal), "trainjob get digits -o yaml"},
		"yaml of many":               {with(noTerminal), "mpijob get -o yaml --status suspended"},
		"jsonpath":                   {with(noTerminal), "trainjob get -o jsonpath={.items[*].metadata.name}"},
		"custom columns":             {with(noTerminal), "training list -o custom-columns=NAME:.metadata.name,PHASE:.status.phase"},
		"none":                       {session{}, "mpijob get"},
		"none anywhere":              {session{}, "training list -A"},
		"unknown job":                {with(noTerminal), "trainjob get nope"},
		"unknown output":             {with(noTerminal), "trainjob get -o picture"},
		"unknown status":             {with(noTerminal), "trainjob get --status tired"},
		"bad selector":               {with(noTerminal), "trainjob get -l a==="},
		"name and selector":          {with(noTerminal), "trainjob get digits -l a=b"},
		"unknown flag":               {with(noTerminal), "trainjob get --frobnicate"},
		"unknown kind":               {with(noTerminal), "training list pod"},
		"unknown command":            {with(noTerminal), "tranjob get"},
		"unknown verb":               {with(noTerminal), "trainjob explode"},
		"completion of a name":       {with(noTerminal), "__complete trainjob get d"},
	})
}

// jobsOnly is a cluster for a user who may only read jobs and runtimes.
func jobsOnly(cluster client.WithWatch) client.WithWatch {
	return interceptor.NewClient(cluster, interceptor.Funcs{List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		switch list.(type) {
		case *corev1.PodList, *corev1.EventList:
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
		}
		return api.List(ctx, list, options...)
	}})
}

func TestDescriptions(t *testing.T) {
	with := func(terminal terminal) session {
		objects := append(someJobs(), trainJobNamed("again", restarting), trainJobNamed("recovered", restarted), mpiJobNamed("greedy", overQuota), mpiJobNamed("raised", raised),
			podOf("trainjob", "digits", "launcher", "digits-launcher", "node-1", 0), podOf("trainjob", "digits", "worker", "digits-worker-0", "node-1", 2),
			eventOf("TrainJob", "digits", "GangScheduled", "All 4 pods have their place", 500), eventOf("Pod", "digits-worker-0", "Unhealthy", "Readiness probe failed: connection refused", 470),
			eventOf("Pod", "somebody-elses", "Unhealthy", "not to be seen", 470),
			eventOf("MPIJob", "solve", "JobFailed", "Worker 1 (pod solve-worker-1 on node node-2) used more memory than its limit of 16Gi and was killed", 20))
		return session{terminal: terminal, objects: objects}
	}
	checkGolden(t, "describe", map[string]struct {
		session
		line string
	}{
		"running":           {with(noTerminal), "trainjob describe digits"},
		"training spelling": {with(noTerminal), "training describe trainjob digits"},
		"narrow":            {with(narrow), "mpijob describe solve"},
		"wide":              {with(wide), "mpijob describe solve"},
		"colour":            {with(colourful), "mpijob describe solve"},
		"waiting":           {with(narrow), "trainjob describe bert"},
		"queued":            {with(noTerminal), "trainjob describe later"},
		"restarting":        {with(noTerminal), "trainjob describe again"},
		"restarted":         {with(noTerminal), "trainjob describe recovered"},
		"over quota":        {with(noTerminal), "mpijob describe greedy"},
		"raised":            {with(noTerminal), "mpijob describe raised"},
		"succeeded":         {with(noTerminal), "trainjob describe done"},
		"suspended":         {with(noTerminal), "mpijob describe paused"},
		"new":               {with(noTerminal), "mpijob describe new"},
		"without a runtime": {with(noTerminal), "trainjob describe orphan"},
		"json":              {with(noTerminal), "mpijob describe new -o json"},
		"yaml":              {with(noTerminal), "mpijob describe new -o yaml"},
		"unknown job":       {with(noTerminal), "mpijob describe nope"},
		"no name":           {with(noTerminal), "mpijob describe"},
		"with few rights":   {session{objects: someJobs(), answers: jobsOnly}, "trainjob describe digits"},
	})
}

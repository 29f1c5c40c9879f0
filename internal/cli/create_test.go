// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trireme-mpi/trireme/api/v2alpha1"
)

const fromInputs = " -f testdata/inputs/"

func TestCreation(t *testing.T) {
	namespaceRuntime := &v2alpha1.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own"}}
	gpus := runtimeNamed("gpus")
	gpus.Spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), "nvidia.com/gpu": resource.MustParse("2")}
	with := session{objects: append(someJobs(), namespaceRuntime, gpus)}
	flags := " --runtime mpi-openmpi-cpu --nodes 4 --slots 2 --gpus 2 --cpu 8 --memory 64Gi --image quay.io/team/train:7 --env A=b --env C=d=e --label team=vision --queue team-a --tag-output"
	checkGolden(t, "create", map[string]struct {
		session
		line string
	}{
		"trainjob from flags":              {with, "trainjob create big" + flags + " --dry-run=client -o yaml -- python train.py --epochs 3"},
		"trainjob of few words":            {with, "trainjob create small --runtime mpi-openmpi-cpu --image i --dry-run=client -o yaml"},
		"mpijob from flags":                {with, "mpijob create big --workers 3 --gpu 2 --image quay.io/team/hpc:2 --mpi MPICH --priority high --suspend --dry-run=client -o yaml -- ./solve --fast"},
		"mpijob with mpirun":               {with, "mpijob create big --image quay.io/team/hpc:2 --command 'mpirun -n 2 ./solve' --dry-run=client -o yaml"},
		"without a name":                   {with, "mpijob create --image i --dry-run=client -o jsonpath={.metadata.generateName} -- a"},
		"created":                          {with, "training create trainjob big" + flags + " -- python train.py"},
		"the namespace's runtime":          {with, "trainjob create big --runtime own --image i -o jsonpath={.spec.runtimeRef}"},
		"CPUs beside the runtime's GPUs":   {with, "trainjob create big --runtime gpus --image i --cpu 8 -o jsonpath={.spec.trainer.resourcesPerNode}"},
		"GPUs beside the runtime's CPUs":   {with, "trainjob create big --runtime gpus --image i --gpus 1 -o jsonpath={.spec.trainer.resourcesPerNode}"},
		"none of the runtime's GPUs":       {with, "trainjob create big --runtime gpus --image i --gpus 0 -o jsonpath={.spec.trainer.resourcesPerNode}"},
		"all from the runtime":             {with, "trainjob create big --runtime gpus --image i -o jsonpath={.spec.trainer}"},
		"a runtime by its kind":            {with, "trainjob create big --runtime trainingruntime/other --image i -o jsonpath={.spec.runtimeRef}"},
		"from a file":                      {with, "trainjob create" + fromInputs + "trainjob.yaml --dry-run=client"},
		"from a file under another name":   {with, "trainjob create again" + fromInputs + "trainjob.yaml -o name"},
		"from stdin":                       {session{stdin: "{apiVersion: kubeflow.org/v2alpha1, kind: TrainJob, metadata: {name: a}, spec: {runtimeRef: {kind: ClusterTrainingRuntime, name: r}, trainer: {image: i}}}"}, "trainjob create --from-stdin -o yaml"},
		"a name that is taken":             {with, "trainjob create" + fromInputs + "trainjob.yaml"},
		"not YAML":                         {with, "trainjob create" + fromInputs + "not-yaml.yaml"},
		"a key twice":                      {with, "trainjob create" + fromInputs + "twice.yaml"},
		"two documents":                    {with, "trainjob create" + fromInputs + "two.yaml"},
		"no document":                      {with, "trainjob create" + fromInputs + "empty.yaml"},
		"a list":                           {with, "trainjob create" + fromInputs + "a-list.yaml"},
		"unknown fields":                   {with, "trainjob create" + fromInputs + "unknown-field.yaml"},
		"a field of another type":          {with, "trainjob create" + fromInputs + "wrong-type.yaml"},
		"the other kind":                   {with, "mpijob create" + fromInputs + "trainjob.yaml"},
		"an old MPIJob":                    {with, "mpijob create" + fromInputs + "v1.yaml"},
		"a pod":                            {with, "mpijob create" + fromInputs + "pod.yaml"},
		"no such file":                     {with, "trainjob create" + fromInputs + "nope.yaml"},
		"a folder":                         {with, "trainjob create -f testdata"},
		"nothing":                          {with, "trainjob create"},
		"no image":                         {with, "trainjob create big --runtime r"},
		"no runtime":                       {with, "trainjob create big --image i"},
		"a runtime of a kind that is none": {with, "trainjob create big --image i --runtime pod/x"},
		"no command":                       {with, "mpijob create big --image i"},
		"a file and flags":                 {with, "trainjob create --image i" + fromInputs + "trainjob.yaml"},
		"another namespace":                {session{stdin: "{apiVersion: kubeflow.org/v2alpha1, kind: TrainJob, metadata: {name: a, namespace: b}}"}, "trainjob create -f - -n c"},
		"against the rules":                {with, "mpijob create Big --image 'no image' --dry-run=client -- a"},
		"beyond the usual limits":          {with, "mpijob create big --image i --workers 101 --slots 9 --cpu 10m --dry-run=client -- a"},
		"too many nodes":                   {with, "trainjob create " + strings.Repeat("long", 12) + " --runtime r --image i --nodes 65 --dry-run=client"},
		"bad amounts":                      {with, "mpijob create big --image i --memory lots -- a"},
		"huge amounts":                     {with, "mpijob create big --image i --memory 1E99999 -- a"},
		"bad GPUs":                         {with, "mpijob create big --image i --gpus -1 -- a"},
		"bad workers":                      {with, "mpijob create big --image i --workers -1 -- a"},
		"bad variable":                     {with, "mpijob create big --image i --env 1=SECRET -- a"},
		"bad label":                        {with, "mpijob create big --image i --label a -- a"},
		"bad dry run":                      {with, "mpijob create big --image i --dry-run=perhaps -- a"},
		"bad slots":                        {with, "mpijob create big --image i --slots -1 -- a"},
		"nodes of an MPIJob":               {with, "mpijob create big --image i --nodes 3 --dry-run=client -o jsonpath={.spec.mpiReplicaSpecs.Worker.replicas} -- a"},
		"a command in quotes":              {with, `trainjob create big --runtime r --image i --dry-run=client -o jsonpath={.spec.trainer.command} --command 'python -c "print(1, 2)"'`},
		"a quote that is open":             {with, `trainjob create big --runtime r --image i --dry-run=client --command 'python -c "print(1, 2)'`},
		"two commands":                     {with, "trainjob create big --runtime r --image i --dry-run=client --command a -- b"},
		"two names":                        {with, "mpijob create big small --image i"},
	})
}

// slowly is a cluster that deletes one job after a while, and the others never.
func slowly(cluster client.WithWatch) client.WithWatch {
	return interceptor.NewClient(cluster, interceptor.Funcs{Delete: func(ctx context.Context, api client.WithWatch, object client.Object, options ...client.DeleteOption) error {
		if object.GetName() == "bert" {
			time.AfterFunc(50*time.Millisecond, func() { _ = api.Delete(context.WithoutCancel(ctx), object) })
		}
		return nil
	}, Watch: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
		// The watch of the fake cluster ignores the field selector.
		name, _ := options[0].(*client.ListOptions).FieldSelector.RequiresExactMatch("metadata.name")
		stream, err := api.Watch(ctx, list, options...)
		return watch.Filter(stream, func(event watch.Event) (watch.Event, bool) {
			return event, event.Object.(client.Object).GetName() == name
		}), err
	}})
}

func TestOtherVerbs(t *testing.T) {
	with := session{objects: someJobs()}
	checkGolden(t, "verbs", map[string]struct {
		session
		line string
	}{
		"wait for one that succeeded":  {with, "trainjob wait done"},
		"wait for one that failed":     {with, "mpijob wait solve"},
		"wait until it runs":           {with, "trainjob wait digits --for running"},
		"wait too long":                {with, "trainjob wait bert --timeout 1ms"},
		"wait for what":                {with, "trainjob wait bert --for luck"},
		"wait for an unknown job":      {with, "trainjob wait nope"},
		"suspend":                      {with, "trainjob suspend digits"},
		"resume":                       {with, "training resume mpijob paused"},
		"suspend one that has ended":   {with, "mpijob suspend solve"},
		"delete":                       {with, "trainjob delete digits"},
		"delete several":               {with, "trainjob delete digits bert --wait=false"},
		"delete by labels":             {with, "trainjob delete -l kueue.x-k8s.io/queue-name=team-a --force"},
		"delete with confirmation":     {with, "trainjob delete digits --confirm --wait=false"},
		"delete unconfirmed":           {with, "trainjob delete digits --confirm=false"},
		"delete nothing":               {with, "trainjob delete"},
		"delete an unknown job":        {with, "trainjob delete nope"},
		"delete an unknown job, maybe": {with, "trainjob delete nope --ignore-not-found"},
		"delete as a trial":            {with, "trainjob delete digits --dry-run=client"},
		"delete as a trial by default": {with, "trainjob delete --dry-run digits"},
		"delete as an odd trial":       {with, "trainjob delete digits --dry-run=perhaps"},
		"delete known and unknown":     {with, "trainjob delete nope digits"},
		"delete unknown jobs":          {with, "trainjob delete nope neither"},
		"delete one that is stuck":     {session{objects: someJobs(), answers: slowly}, "trainjob delete digits bert --timeout 3s"},
		"help":                         {with, ""},
		"help of a kind":               {with, "mpijob"},
	})
}

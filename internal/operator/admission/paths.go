// SPDX-License-Identifier: Apache-2.0

package admission

// webhookPaths are the paths of the webhooks of the chart, by name.
var webhookPaths = map[string]string{
	"job-creator.kubeflow.org":                       CreatorPath,
	"mpijob-validation.kubeflow.org":                 mpiJobPath,
	"mpijob-deletion.kubeflow.org":                   mpiJobPath,
	"trainjob-validation.kubeflow.org":               trainJobPath,
	"trainjob-deletion.kubeflow.org":                 trainJobPath,
	"trainingruntime-validation.kubeflow.org":        runtimePath,
	"trainingruntime-deletion.kubeflow.org":          runtimePath,
	"clustertrainingruntime-validation.kubeflow.org": clusterRuntimePath,
	"clustertrainingruntime-deletion.kubeflow.org":   clusterRuntimePath,
}

const (
	mpiJobPath         = "/validate/mpijob"
	trainJobPath       = "/validate/trainjob"
	runtimePath        = "/validate/trainingruntime"
	clusterRuntimePath = "/validate/clustertrainingruntime"
)

// PathOf returns the path of a webhook; found is false for one that is not ours.
func PathOf(webhook string) (path string, found bool) {
	path, found = webhookPaths[webhook]
	return path, found
}

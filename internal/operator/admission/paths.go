package admission

// webhookPaths are where the webhooks of config/webhook are served, by their names.
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

// PathOf is where a webhook of that name is served; found is false for one that is not
// ours.
func PathOf(webhook string) (path string, found bool) {
	path, found = webhookPaths[webhook]
	return path, found
}

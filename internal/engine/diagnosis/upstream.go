// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trireme-mpi/trireme/api/training"
)

// upstreamAnnotation of a TrainJob of Kubeflow's Trainer is the progress that the training
// page of Open Data Hub shows.
const upstreamAnnotation = "trainer.opendatahub.io/trainerStatus"

// evalPrefix is the beginning of the names of metrics of an evaluation.
const evalPrefix = "eval_"

// UpstreamProgress are two merge patches of the TrainJob that a JobSet of Kubeflow's Trainer
// belongs to, for its status and its metadata. They are empty if the progress has not
// changed.
func UpstreamProgress(before, after *jobset.JobSet) (status, metadata []byte) {
	owner, progress := metav1.GetControllerOf(after), recordOf(after).TrainerStatus
	if owner == nil || progress == nil || progress.LastUpdatedTime == nil || apiequality.Semantic.DeepEqual(recordOf(before).TrainerStatus, progress) {
		return nil, nil
	}
	// The UID protects another TrainJob of the same name.
	return encoded(map[string]any{"metadata": map[string]any{"uid": owner.UID}, "status": map[string]any{"trainerStatus": upstreamStatus(progress)}}),
		encoded(map[string]any{"metadata": uidAndAnnotation(owner.UID, string(encoded(shownProgress(progress))))})
}

func uidAndAnnotation(uid types.UID, value string) map[string]any {
	return map[string]any{"uid": uid, "annotations": map[string]string{upstreamAnnotation: value}}
}

func encoded(value any) []byte {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err) // only text, numbers and maps of them
	}
	return content
}

// upstreamStatus has the fields of status.trainerStatus that Trainer's CRD knows, within
// its limits.
func upstreamStatus(progress *training.TrainerStatus) map[string]any {
	// A merge patch deletes what is null.
	status := map[string]any{"lastUpdatedTime": progress.LastUpdatedTime.UTC().Format(time.RFC3339), "progressPercentage": nil, "estimatedRemainingSeconds": nil}
	if percentage := progress.ProgressPercentage; percentage != nil {
		status["progressPercentage"] = min(max(*percentage, 0), 100)
	}
	if remaining := progress.EstimatedRemainingSeconds; remaining != nil {
		status["estimatedRemainingSeconds"] = remainingSeconds(*remaining)
	}
	metrics := []map[string]string{}
	for _, metric := range progress.Metrics {
		if metric.Name != "" && metric.Value != "" {
			metrics = append(metrics, map[string]string{"name": metric.Name, "value": metric.Value})
		}
	}
	status["metrics"] = metrics
	return status
}

// remainingSeconds is within the limits of Trainer's CRD.
func remainingSeconds(seconds int64) int64 { return min(max(seconds, 0), math.MaxInt32) }

// shownProgress is what the training page of Open Data Hub reads: steps, and metrics as
// numbers.
func shownProgress(progress *training.TrainerStatus) map[string]any {
	shown := map[string]any{"lastUpdatedTime": progress.LastUpdatedTime.UTC().Format(time.RFC3339)}
	if progress.ProgressPercentage != nil {
		shown["progressPercentage"] = *progress.ProgressPercentage
	}
	if remaining := progress.EstimatedRemainingSeconds; remaining != nil {
		seconds := remainingSeconds(*remaining)
		shown["estimatedRemainingSeconds"] = seconds
		// The page shows this text as it is.
		shown["estimatedRemainingTimeSummary"] = duration.HumanDuration(time.Duration(seconds) * time.Second)
	}
	for name, value := range map[string]*int64{"currentStep": progress.Step, "totalSteps": progress.TotalSteps} {
		if value != nil {
			shown[name] = *value
		}
	}
	training, evaluation := map[string]any{}, map[string]any{}
	for _, metric := range progress.Metrics {
		number, err := strconv.ParseFloat(metric.Value, 64)
		isNumber := err == nil && !math.IsNaN(number) && !math.IsInf(number, 0)
		switch {
		case !isNumber:
		case metric.Name == "epoch":
			shown["currentEpoch"] = number
		case strings.HasPrefix(metric.Name, evalPrefix):
			evaluation[metric.Name] = number
		default:
			training[metric.Name] = number
		}
	}
	shown["trainMetrics"], shown["evalMetrics"] = training, evaluation
	return shown
}

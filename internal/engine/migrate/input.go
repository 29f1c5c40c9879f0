package migrate

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2beta1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

// Object is one object of a file.
type Object map[string]any

// Kind of the object.
func (object Object) Kind() schema.GroupVersionKind {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// Named is how the object is written in messages.
func (object Object) Named() string { return fmt.Sprintf("%s %s", object.Kind().Kind, nameOf(object)) }

// IsMPIJob tells whether the object can be converted.
func (object Object) IsMPIJob() bool {
	return object.Kind() == v2beta1.GroupVersion.WithKind(string(job.KindMPIJob))
}

// TooOldError is an MPIJob of a version that cannot be converted.
type TooOldError struct {
	Object  string
	Version string
	// Advice says what to do, one step at a time.
	Advice []string
}

func (err *TooOldError) Error() string {
	return fmt.Sprintf("%s is of version %s, and only v2beta1 can be converted", err.Object, err.Version)
}

// Read reads the objects of a file, from the JSON of its documents. Lists are taken
// apart. An MPIJob of an old version is an error.
func Read(documents [][]byte) ([]Object, error) {
	var objects []Object
	for i, document := range documents {
		if err := job.CheckQuantities(document); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		var object Object
		if err := utiljson.Unmarshal(document, &object); err != nil || object.Kind().Kind == "" || object.Kind().Version == "" {
			return nil, fmt.Errorf("document %d is no object of Kubernetes: it lacks apiVersion or kind", i+1)
		}
		objects = append(objects, flat(object)...)
	}
	for _, object := range objects {
		if err := tooOld(object); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// flat takes a list apart.
func flat(object Object) (objects []Object) {
	items, isList := object["items"].([]any)
	if !isList || !strings.HasSuffix(object.Kind().Kind, "List") {
		return []Object{object}
	}
	for _, item := range items {
		content, isObject := item.(map[string]any)
		if !isObject {
			continue
		}
		one := Object(content)
		// The items of a typed list need not say what they are.
		if one["kind"] == nil {
			one["apiVersion"], one["kind"] = object["apiVersion"], strings.TrimSuffix(object.Kind().Kind, "List")
		}
		objects = append(objects, flat(one)...)
	}
	return objects
}

// tooOld finds MPIJobs of other versions, and says what to do about them.
func tooOld(object Object) error {
	kind := object.Kind()
	if kind.Group != training.Group || kind.Kind != string(job.KindMPIJob) || kind.Version == v2beta1.GroupVersion.Version {
		return nil
	}
	err := &TooOldError{Object: object.Named(), Version: kind.Version}
	switch kind.Version {
	case "v1":
		err.Advice = []string{
			"Write apiVersion: kubeflow.org/v2beta1, and leave out spec.mainContainer.",
			"Move spec.cleanPodPolicy, and what else is about the life of the job, below spec.runPolicy.",
			"Leave out what reached the workers by kubectl: OMPI_MCA_plm_rsh_agent and the launcher's service account for it.",
			"Convert it again, and read what the report says.",
		}
	case "v1alpha2":
		err.Advice = []string{
			"Write apiVersion: kubeflow.org/v2beta1; spec.mpiReplicaSpecs stays as it is.",
			"Leave out spec.mainContainer, and what reached the workers by kubectl: OMPI_MCA_plm_rsh_agent and the launcher's service account for it.",
			"Convert it again, and read what the report says.",
		}
	case "v1alpha1":
		err.Advice = []string{
			"Write a TrainJob anew: spec.gpus or spec.processingUnits by spec.processingUnitsPerNode is spec.trainer.numNodes, and spec.template has image, command and resources.",
			"docs/user-guide/jobs.md has a TrainJob to start from.",
		}
	default:
		err.Advice = []string{"Write it as kubeflow.org/v2beta1 and convert it again."}
	}
	return err
}

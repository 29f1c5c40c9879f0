// SPDX-License-Identifier: Apache-2.0

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

// Kind returns the group, version and kind of the object.
func (o Object) Kind() schema.GroupVersionKind {
	apiVersion, _ := o["apiVersion"].(string)
	kind, _ := o["kind"].(string)
	return schema.FromAPIVersionAndKind(apiVersion, kind)
}

// Named returns the kind and name of the object, for messages.
func (o Object) Named() string { return fmt.Sprintf("%s %s", o.Kind().Kind, nameOf(o)) }

// IsMPIJob reports whether the object can be converted.
func (o Object) IsMPIJob() bool {
	return o.Kind() == v2beta1.GroupVersion.WithKind(string(job.KindMPIJob))
}

// TooOldError is an MPIJob of a version that cannot be converted.
type TooOldError struct {
	Object  string
	Version string
	// Advice is a list of steps.
	Advice []string
}

func (e *TooOldError) Error() string {
	return fmt.Sprintf("%s has version %s; only v2beta1 can be converted", e.Object, e.Version)
}

// Read reads the objects of a file from the JSON of its documents. It returns the items
// of lists. An MPIJob of an old version is an error.
func Read(documents [][]byte) ([]Object, error) {
	var objects []Object
	for i, document := range documents {
		if err := job.CheckQuantities(document); err != nil {
			return nil, fmt.Errorf("document %d: %w", i+1, err)
		}
		var object Object
		if err := utiljson.Unmarshal(document, &object); err != nil || object.Kind().Kind == "" || object.Kind().Version == "" {
			return nil, fmt.Errorf("document %d is not a Kubernetes object: apiVersion or kind is missing", i+1)
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

// flat returns the items of a list, or the object itself.
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
		element := Object(content)
		// Items of a typed list may have no kind.
		if element["kind"] == nil {
			element["apiVersion"], element["kind"] = object["apiVersion"], strings.TrimSuffix(object.Kind().Kind, "List")
		}
		objects = append(objects, flat(element)...)
	}
	return objects
}

// tooOld returns an error with advice for MPIJobs of other versions.
func tooOld(object Object) error {
	kind := object.Kind()
	if kind.Group != training.Group || kind.Kind != string(job.KindMPIJob) || kind.Version == v2beta1.GroupVersion.Version {
		return nil
	}
	err := &TooOldError{Object: object.Named(), Version: kind.Version}
	switch kind.Version {
	case "v1":
		err.Advice = []string{
			"Set apiVersion: kubeflow.org/v2beta1, and remove spec.mainContainer.",
			"Move spec.cleanPodPolicy and the other fields of the run policy to spec.runPolicy.",
			"Remove the settings for kubectl as the remote shell: OMPI_MCA_plm_rsh_agent and the launcher's service account.",
			"Convert it again, and read the report.",
		}
	case "v1alpha2":
		err.Advice = []string{
			"Set apiVersion: kubeflow.org/v2beta1; spec.mpiReplicaSpecs does not change.",
			"Remove spec.mainContainer and the settings for kubectl as the remote shell: OMPI_MCA_plm_rsh_agent and the launcher's service account.",
			"Convert it again, and read the report.",
		}
	case "v1alpha1":
		err.Advice = []string{
			"Write a new TrainJob: spec.trainer.numNodes is spec.gpus or spec.processingUnits divided by spec.processingUnitsPerNode; take image, command and resources from spec.template.",
			"See docs/user-guide/jobs.md for an example.",
		}
	default:
		err.Advice = []string{"Change it to kubeflow.org/v2beta1 and convert it again."}
	}
	return err
}
